# SPDX-License-Identifier: Apache-2.0
"""What `genmonitor sweep` takes and says; that values come again is tested with the callbacks."""

import json
import sys

import pytest
from _helpers.modules import LIGHTNING_SAYS
from _helpers.replayed import Digits
from _helpers.swept import new, train

from genmonitor.cli.sweep import show

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:.*treat the baseline as approximate")]

SETUP = """
from _helpers.replayed import Digits, quiet
from _helpers.swept import new

def build():
    print("building")
    return new(), Digits(), quiet()
"""


@pytest.fixture
def run(tmp_path):
    """The folder of a run without a monitor, and where its setup is."""
    train(tmp_path, new(), Digits())
    (tmp_path / "setup_of_a_sweep.py").write_text(SETUP)
    yield tmp_path, f"{tmp_path / 'setup_of_a_sweep.py'}:build"
    sys.modules.pop("setup_of_a_sweep", None)


def test_sweep_evaluates_a_run(run, genmonitor):
    folder, setup = run
    status, out, told = genmonitor("sweep", folder, "--setup", setup, "--json")
    assert status == 0
    result = json.loads(out)  # and nothing else, whatever is printed on the way
    assert "building" in told
    assert (result["folder"], result["before"], result["skipped"]) == (str(folder), 0, {})
    assert result["evaluated"] == ["epoch=0-step=3.ckpt", "epoch=1-step=6.ckpt"]
    assert [record["step"] for record in result["histories"]["cms"]] == [2, 5]
    assert told.index("2 checkpoints to evaluate") < told.index("1 of 2")
    assert "2 of 2: epoch=1-step=6.ckpt, step 5" in told
    assert (folder / "genmonitor" / "report.html").is_file()
    status, out, _ = genmonitor("sweep", folder, "--setup", setup)
    assert (status, out) == (0, f"Evaluated 0 checkpoints, 2 before, in {folder}.\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere", "--setup", "x.py:build"], "there is no nowhere"),
        (["."], "required: --setup"),
        ([".", "--device", "gpu", "--setup", "x.py:build"], "Expected `device` to be cpu, mps, cuda"),
        (["--setup", "x.py:build"], "required: RUN"),
    ],
)
def test_sweep_says_what_is_wrong(genmonitor, arguments, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, told = genmonitor("sweep", *arguments)
    assert (status, out) == (2, "")
    assert complaint in told


def test_sweep_says_what_was_skipped():
    result = {"evaluated": ["a.ckpt"], "before": 2, "folder": "run", "skipped": {"b.ckpt": "it is half a file"}}
    assert show(result).splitlines() == [
        "Evaluated 1 checkpoint, 2 before, in run.",
        "Skipped b.ckpt: it is half a file",
    ]
