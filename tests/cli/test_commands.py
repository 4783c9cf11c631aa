# SPDX-License-Identifier: Apache-2.0
"""The commands as a person types them."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from _helpers.runs import make_run

from genmonitor import PixelPartition
from genmonitor.cli import main
from genmonitor.functional import cosine_mean_similarity
from genmonitor.kernels import GaussianKernel


def images(n, seed, dark=False):
    """Images whose left and right halves vary together, independently; the right one perhaps too dark."""
    generator = torch.Generator().manual_seed(seed)
    halves = torch.rand(n, 2, generator=generator).repeat_interleave(3, 1)
    values = 0.8 * halves[:, None, None, :] + 0.2 * torch.rand(n, 1, 4, 6, generator=generator)
    return torch.cat([values[..., :3], values[..., 3:] * (0.6 if dark else 1)], 3)


@pytest.fixture
def files(tmp_path):
    real, fake = tmp_path / "real.npy", tmp_path / "fake.npz"
    np.save(real, images(300, 1).numpy())
    np.savez(fake, images=images(120, 2, dark=True).numpy())
    return [str(real), str(fake)]


def run(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_compare_blames_the_dark_half_and_writes_the_report(files, tmp_path, capsys):
    status, said, _ = run(capsys, "compare", *files, "--n-clusters", 2, "--out", tmp_path / "out")
    assert status == 0
    partition = PixelPartition.load(tmp_path / "out" / "genmonitor" / "partition.npz")
    dark = f"cluster_{int(partition.labels[0, 5])}"
    assert (partition.labels[:, 3:] == partition.labels[0, 5]).all()
    rows = [line.split() for line in said.splitlines() if line.startswith("cluster_")]
    assert rows[0][0] == dark
    assert int(rows[0][4]) > 80
    folder = tmp_path / "out" / "genmonitor"
    assert str(folder / "report.html") in said
    page = (folder / "report.html").read_text()
    assert "share of the loss" in page
    assert f"Comparison of {files[0]} with {files[1]}" in page
    assert "so its band is too narrow" in said
    assert "so its band is too narrow" in page
    assert page.index("so its band is too narrow") < page.index("share of the loss")
    (drawn,) = json.loads(re.search(r'id="drawn">(.*?)</script>', page)[1])
    assert [(chart["title"], chart["by"]) for chart in drawn["charts"]] == [("CMS per cluster", "")]
    assert not drawn["sliders"]
    # there was no training: nothing has an epoch
    shown = re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.S)
    assert "epoch" not in said + shown


def test_compare_as_json_holds_the_metrics_own_values(files, tmp_path, capsys):
    status, said, _ = run(capsys, "compare", *files, "--n-clusters", 2, "--out", tmp_path / "out", "--json")
    result = json.loads(said)
    assert (status, result["n_samples"]) == (0, 120)
    folder = tmp_path / "out" / "genmonitor"
    generator = torch.Generator().manual_seed(0)
    real = images(300, 1)[torch.randperm(300, generator=generator)[:120]]
    values = cosine_mean_similarity(
        images(120, 2, dark=True),
        real,
        kernel=GaussianKernel(result["gamma"]),
        partition=PixelPartition.load(folder / "partition.npz"),
    )
    assert {name: result["values"][name] for name in values} == pytest.approx({k: float(v) for k, v in values.items()})
    assert json.loads((folder / "cms_check_00001.json").read_text())["check"]["image"] == result["values"]["image"]
    low, median, high = result["yardstick"]["image"]
    assert result["values"]["image"] < low < median < high


def test_compare_takes_a_partition(files, tmp_path, capsys):
    PixelPartition.grid((4, 6), 2, 1).save(tmp_path / "halves.npz")
    options = ["--partition", tmp_path / "halves.npz", "--out", tmp_path / "out", "--json"]
    status, said, _ = run(capsys, "compare", *files, *options)
    assert status == 0
    values = json.loads(said)["values"]
    assert values["share_1"] == pytest.approx(0.5, abs=0.1)  # upper and lower half are equally wrong


def test_clusters_finds_the_halves(files, tmp_path, capsys):
    status, said, _ = run(capsys, "clusters", files[0], "--n-clusters", 2, "--out", tmp_path / "out")
    assert status == 0
    assert [line.split() for line in said.splitlines()[1:3]] == [["cluster_1", "12"], ["cluster_2", "12"]]
    labels = PixelPartition.load(tmp_path / "out" / "partition.npz").labels
    assert len(labels[:, :3].unique()) == len(labels[:, 3:].unique()) == 1
    names = {"clusters.png", "clusters_over_average.png", "cka.png", "partition.npz"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    _, said, _ = run(capsys, "clusters", files[0], "--n-clusters", 2, "--out", tmp_path / "out", "--json")
    assert json.loads(said)["labels"] == labels.tolist()


def test_report_makes_the_page_again(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    status, said, _ = run(capsys, "report", tmp_path / "run")
    assert (status, said) == (0, f"Report: {folder / 'report.html'}\n")
    assert (folder / "report.html").exists()


WRONG = {
    "compare nothing.npy {fake}": "there is no nothing.npy",
    "compare {real} {other}": "generated images of shape [1, 4, 6] like the real ones, but got [1, 3, 3]",
    "compare {real} {fake} --partition {fake}": "partition.npz of `genmonitor clusters`",
    "compare {real} {fake} --n-samples 1": "--n-samples` to be a whole number >= 2, but got 1",
    "compare {real} {scaled}": "one value range",
    "clusters {real} --n-clusters 99": "`n_clusters` of at most 24",
    "clusters {real} --patch-size 4": "patch",
    "report nowhere": "Expected the folder of a run",
    "replay nowhere.json --checkpoint nowhere.ckpt": "nowhere.json",
}


@pytest.mark.parametrize("command", WRONG)
def test_what_is_wrong_is_said_in_a_line_with_status_2(command, files, tmp_path, capsys):
    np.save(tmp_path / "other.npy", np.zeros((9, 1, 3, 3), dtype=np.float32))
    np.save(tmp_path / "scaled.npy", 255 * images(50, 3).numpy())
    places = {"real": files[0], "fake": files[1]}
    places |= {name: tmp_path / f"{name}.npy" for name in ("other", "scaled")}
    out = ["--out", str(tmp_path / "out")] if command.startswith(("compare", "clusters")) else []
    status, said, complaint = run(capsys, *command.format(**places).split(), *out)
    assert (status, said) == (2, "")
    assert WRONG[command] in complaint
    assert complaint.startswith(f"genmonitor {command.split()[0]}: ")
    assert "Traceback" not in complaint
    assert not (tmp_path / "out").exists()


def test_help_names_the_commands_and_does_not_wait_for_lightning():
    code = """
import sys
from genmonitor.cli import main
try:
    main(["--help"])
finally:
    print("lightning" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(f"\n  {name} " in out.replace("    ", "  ") for name in ("compare", "clusters", "replay", "report"))
    assert "exit status: 0" in out
    assert out.endswith("False\n")


@pytest.mark.parametrize("command", ["compare", "clusters", "replay", "report"])
def test_each_command_explains_what_it_takes(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert f"usage: genmonitor {command}" in said
    assert "--json" in said


def test_no_command_is_a_mistake(capsys):
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2
    assert "COMMAND" in capsys.readouterr().err
