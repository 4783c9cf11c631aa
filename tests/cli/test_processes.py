# SPDX-License-Identifier: Apache-2.0
"""Commands in two processes, as torchrun and Slurm start them, give what they give in one."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from _helpers.modules import LIGHTNING_SAYS
from _helpers.replayed import Digits
from _helpers.slow import nightly_but
from _helpers.swept import new, train

pytestmark = [*LIGHTNING_SAYS, pytest.mark.slow]

SECONDS = 240
TORCHRUN = ["-m", "torch.distributed.run", "--standalone"]
BOTH = [*TORCHRUN, "--nproc-per-node", "2"]
COMMAND = ["-m", "genmonitor"]
SHARED = "--distributed"
SETUP = """
import os, time
from pathlib import Path
from _helpers.modules import trainer
from _helpers.replayed import Digits, quiet
from _helpers.swept import new

def draw(module, n):
    place = Path(__file__).parent
    if os.environ.get("RANK") == "1" and list(place.glob("out/genmonitor/cms_run.json")):
        (place / "waits").write_text(str(os.getpid()))
        time.sleep(900)
    return module.sample(n)

def build():
    return trainer("."), new(), Digits(), [quiet(), quiet(prefix="other", n_samples=41)]

def waiting():
    return new(), Digits(), quiet(sample_fn=draw)

def patient():
    return new(), Digits(), quiet(sample_fn=lambda module, n: module.sample(n))
"""
DIES = """
import os, signal, sys
from genmonitor.cli import compare, main

def dying(work):
    def work_and_die(*args, **kwargs):
        done = work(*args, **kwargs)
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    return work_and_die

compare.read_outputs = dying(compare.read_outputs)
sys.exit(main())
"""
BREAKS = """
import os, sys
from genmonitor.cli import main, results

def broken(*_, **__):
    raise OSError("the disk is gone")

if os.environ["RANK"] == "1":
    results.read_outputs = broken
sys.exit(main())
"""


@pytest.fixture
def here(classes, files, tmp_path, monkeypatch):
    """Run in a folder with images, embeddings and a trained run; processes are started as by a shell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    (tmp_path / "images").symlink_to(classes)
    (tmp_path / "build.py").write_text(SETUP)
    (tmp_path / "breaks.py").write_text(BREAKS)
    (tmp_path / "dies.py").write_text(DIES)
    np.save(tmp_path / "few.npy", np.random.default_rng(0).normal(size=(3, 4)))
    (tmp_path / "few.txt").write_text("a\na\nb\n")
    return tmp_path


def start(*words, **environment):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *map(str, words)], env=os.environ | environment, **pipes)


def run(*words):
    """Return status, standard output, and what genmonitor itself said on standard error."""
    process = start(*words)
    out, told = process.communicate(timeout=SECONDS)
    return process.returncode, out, [line for line in told.splitlines() if re.match(r"genmonitor \w+: ", line)] or told


def result(*words):
    status, out, told = run(*words, "--json")
    assert status == 0, told
    return json.loads(out)  # of one process alone


@pytest.fixture
def alone(here, genmonitor, monkeypatch):
    """Return the result of a command in this process, which may have imported another build.py."""
    monkeypatch.delitem(sys.modules, "build", raising=False)

    def run_alone(*words):
        status, out, told = genmonitor(*words, "--json")
        assert status == 0, told
        return json.loads(out)

    return run_alone


def agree(found, expected):
    """Whether results are the same, numbers within 1e-6, but for places and seconds."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected.keys() - {"report", "replaced", "folder", "sampling_seconds", "metric_seconds"}:
            agree(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            agree(one, other)
    else:
        assert found == (pytest.approx(expected, rel=1e-6, abs=1e-6) if isinstance(expected, float) else expected)


COMMANDS = {
    "compare": "compare real.npy fake.npz --n-clusters 2",
    "which is closer": "compare real.npy fake.npz fake.npz --n-clusters 2 --paired",
    "diversity": "diversity images/a --prompts images/prompts.csv --real images/b --batch-size 10",
    "disagreement": "disagreement images/a images/b --prompts images/prompts.txt --batch-size 10",
}
FEW = ["diversity few.npy --sigma 1", "disagreement few.npy few.npy"]


@pytest.mark.parametrize("name", nightly_but(COMMANDS, "compare", "disagreement"))
def test_two_processes_find_what_one_does(here, alone, name):
    words = COMMANDS[name].split()
    agree(result(*BOTH, *COMMAND, *words, SHARED), alone(*words))
    versions = [*(here / "runs" / words[0]).iterdir()]
    assert sorted(path.name for path in versions) == ["version_0", "version_1"]  # one process alone writes


@pytest.mark.nightly
@pytest.mark.parametrize("words", FEW)
def test_more_processes_than_outputs(alone, words):
    words = [*words.split(), "--prompts", "few.txt"]
    found, expected = result(*TORCHRUN, "--nproc-per-node", 4, *COMMAND, *words, SHARED), alone(*words)
    agree(found["values"], expected["values"])  # which end of a mode comes first is rounding
    assert found["finding"] == expected["finding"]


@pytest.mark.nightly
def test_more_processes_than_images(alone):
    words = [*COMMANDS["compare"].split(), "--n-samples", "3"]
    agree(result(*TORCHRUN, "--nproc-per-node", 4, *COMMAND, *words, SHARED), alone(*words))


@pytest.mark.parametrize("command", nightly_but(["compare", "sweep"], "compare"))
def test_processes_of_slurm_find_each_other(here, alone, command):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {
        "SLURM_NTASKS": 2,
        "SLURM_STEP_NUM_TASKS": 2,
        "SLURM_NTASKS_PER_NODE": 2,
        "SLURM_NNODES": 1,
        "SLURM_NODEID": 0,
    }
    job |= {"SLURM_JOB_NAME": "compare", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = COMMANDS["compare"].split()
    if command == "sweep":
        train(here / "run", new(), Digits())
        words = ["sweep", "run", "--setup", "build.py:build", "--out", "out"]
    tasks = [
        start(*COMMAND, *words, "--json", SHARED, **{k: str(v) for k, v in (job | of).items()})
        for of in ({"SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in range(2))
    ]
    (first, _), (second, _) = (task.communicate(timeout=SECONDS) for task in tasks)
    assert [task.returncode for task in tasks] == [0, 0]
    assert second == ""
    agree(json.loads(first), alone(*words[:-1], "alone" if command == "sweep" else words[-1]))


@pytest.mark.nightly  # a killed process of a sweep is in CI
def test_sweep_by_two_processes_gives_what_one_does(here, alone):
    train(here / "run", new(), Digits(), max_epochs=3)
    words = ["sweep", "run", "--setup", "build.py:build", "--out"]
    found = result(*BOTH, *COMMAND, *words, "two", SHARED)
    agree(found, alone(*words, "one"))
    assert len(found["histories"]["cms"]) == 3


def test_killed_process_of_a_sweep_loses_nothing_that_was_finished(here, alone):
    train(here / "run", new(), Digits())
    words = ["sweep", "run", "--setup"]
    process = start(*BOTH, *COMMAND, *words, "build.py:waiting", "--out", "out", SHARED)
    end = time.monotonic() + SECONDS
    while not (here / "waits").exists() or not (here / "waits").read_text():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    os.kill(int((here / "waits").read_text()), signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    assert process.returncode != 0
    agree(
        result(*BOTH, *COMMAND, *words, "build.py:patient", "--out", "out", SHARED)["histories"],
        expected := alone(*words, "build.py:patient", "--out", "one")["histories"],
    )
    assert len(expected["cms"]) == 2


@pytest.mark.nightly
def test_killed_process_of_a_comparison_leaves_no_files(here):
    status, out, _ = run(*BOTH, "dies.py", *COMMANDS["compare"].split(), SHARED)
    assert (status, out) == (1, "")
    assert not (here / "runs").exists()


def test_wrong_input_is_told_once(here):
    status, out, told = run(*BOTH, *COMMAND, "compare", "nowhere", "fake.npz", SHARED)
    assert (status, out) == (1, "")  # torchrun's own status
    assert told == [
        "genmonitor compare: Expected a folder of image files, or a .npy or .npz file, but there is no nowhere."
    ]


def test_error_of_one_process_ends_all_with_its_message(here):
    begin = time.monotonic()
    status, out, told = run(*BOTH, "breaks.py", "disagreement", "images/a", "images/b", SHARED)
    assert (status, out, told) == (1, "", ["genmonitor disagreement: the disk is gone"])
    assert time.monotonic() - begin < SECONDS / 2
    assert not (here / "runs").exists()


@pytest.mark.nightly
def test_failed_gate_is_printed_whole(here):
    status, out, told = run(*BOTH, *COMMAND, *COMMANDS["compare"].split(), "--fail-if", "p < 0.01", SHARED)
    assert status == 1
    assert out.startswith("Right half")
    assert len(told) == 1
    assert told[0].startswith("genmonitor compare: failed: p = 0.00")
