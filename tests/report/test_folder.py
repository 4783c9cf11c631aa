# SPDX-License-Identifier: Apache-2.0
import math
import os

import numpy as np
import pytest
from _helpers.runs import VALUES, add_diversity, make_run, record

from genmonitor.findings.finding import Area, Finding
from genmonitor.findings.tables import Table
from genmonitor.plotting.pixel_clusters import cluster_map
from genmonitor.report import RunFolder
from genmonitor.report.folder import free_folder
from genmonitor.report.pictures import render
from genmonitor.report.run import MonitorRun, Note, read_run


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_write_figures_names_the_latest_and_those_by_epoch(tmp_path):
    folder = RunFolder(tmp_path / "run" / "genmonitor")
    latest = folder.write_figures("cms", {"clusters": cluster_map([[1, 2]])}, step=0)
    assert latest == {"clusters": folder.path / "cms_clusters.png"}
    rendered = render(cluster_map([[1, 0]]))
    by_epoch = folder.write_figures("cms", {"samples": rendered}, step=1200, epoch=3)
    assert by_epoch == {"samples": folder.path / "cms_samples_epoch_0003_step_1200.png"}
    assert by_epoch["samples"].read_bytes() == rendered
    assert latest["clusters"].read_bytes()[:4] == b"\x89PNG"


def test_write_figures_cannot_leave_the_folder(tmp_path):
    figure = cluster_map([[1]])
    paths = RunFolder(tmp_path).write_figures("cms", {"../../etc/x y": figure, "/": figure}, 1)
    assert [path.name for path in paths.values()] == ["cms_etc_x_y.png", "cms.png"]
    assert {path.parent for path in paths.values()} == {tmp_path}


def written(folder, prefix="cms", **parts):
    """Write the file of a run with one evaluation."""
    one = {"values": record(1), "message": "", "wrong": []}
    return folder.write_run(prefix, **{"fixed": {}, "evaluations": [one], "declared": VALUES} | parts)


def test_prefix_cannot_leave_the_folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    written(folder, "../my cms", notes=[{"text": "note"}])
    folder.write_figures("../my cms", {"clusters": cluster_map([[1, 2]])}, 1)
    assert names(tmp_path) == {"run"}
    (monitor,) = read_run(folder.path).monitors
    assert (monitor.prefix, list(monitor.values.values()), len(monitor.notes)) == ("my_cms", VALUES, 1)
    assert (monitor.manifest["prefix"], set(monitor.pictures)) == ("../my cms", {"clusters"})


def test_write_figures_replaces_a_file_as_a_whole(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    path = folder.write_figures("cms", {"clusters": cluster_map([[1, 2]])}, 1)["clusters"]
    before = path.read_bytes()

    def full(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        folder.write_figures("cms", {"clusters": cluster_map([[1]])}, 2)
    assert names(tmp_path) == {"cms_clusters.png"}
    assert path.read_bytes() == before


def test_run_is_read_as_it_was_written(tmp_path):
    finding, table = Finding("Dark.", Area("image"), "dark", "image", fine=False), Table(["prompt"], [["a cat"]])
    notes = [{"epoch": 1, "step": 19, "text": "cluster_2 got worse", "alert": "cluster_2"}, {"text": "few images"}]
    path = written(
        RunFolder(tmp_path),
        fixed={"seed": 3, "baseline": {"image": (0.1, 0.2, 0.3)}},
        evaluations=[{"values": record(1) | {"fid": math.nan}, "message": "said", "threads": 2}],
        findings=[finding],
        notes=notes,
        tables={"prompts": table},
    )
    run = MonitorRun.read(path)
    assert path == tmp_path / "cms_run.json"
    assert run.manifest == {
        "prefix": "cms",
        "seed": 3,
        "baseline": {"image": [0.1, 0.2, 0.3]},
        "values": record(1),
        "message": "said",
        "threads": 2,
    }
    assert (run.findings, run.baseline, list(run.values.values())) == ([finding], {"image": (0.1, 0.2, 0.3)}, VALUES)
    assert run.notes == [Note(**note) for note in notes]
    assert run.tables == {"prompts": Table(["prompt"], [["a cat"]])}


def test_pictures_in_a_table_are_left_out(tmp_path):
    table = Table(["prompt", "samples", "share"], [["a cat", np.zeros((2, 2, 3), np.uint8), 0.5]])
    run = MonitorRun.read(written(RunFolder(tmp_path), tables={"prompts": table}))
    assert run.tables == {"prompts": Table(["prompt", "share"], [["a cat", 0.5]])}


def test_write_report_writes_the_page_of_the_folder(tmp_path):
    folder = make_run(tmp_path)
    assert RunFolder(folder).write_report() == folder / "report.html"
    assert "PixelClusterMonitor" in (folder / "report.html").read_text()


def test_every_write_raises_oserror_where_it_cannot(tmp_path):
    (tmp_path / "file").write_text("")
    folder = RunFolder(tmp_path / "file" / "genmonitor")
    for write in (
        lambda: written(folder),
        lambda: folder.write_figures("cms", {"clusters": cluster_map([[1]])}, 1),
        folder.write_report,
    ):
        with pytest.raises(OSError):
            write()


def test_free_folder_is_one_without_a_run_of_these_monitors(tmp_path):
    def free(*prefixes):
        return free_folder(tmp_path, "genmonitor", prefixes).name

    assert free("cms") == "genmonitor"
    add_diversity(tmp_path / "genmonitor-v1", ["a cat"])
    make_run(tmp_path)
    assert (free("cms"), free("cms", "diversity"), free("other")) == ("genmonitor-v1", "genmonitor-v2", "genmonitor")


def test_take_replaces_an_earlier_result_once_the_new_one_is_there(tmp_path, monkeypatch):
    folder, aside = make_run(tmp_path), tmp_path / "aside"
    add_diversity(folder, ["a cat"])
    (folder / "mine.txt").write_text("mine")
    others = {name for name in names(folder) if not name.startswith("cms")}
    written(RunFolder(aside))
    before = names(folder)

    def full(source, target):
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="disk full"):
            RunFolder(folder).take(aside, "cms")
    assert names(folder) == before
    RunFolder(folder).take(aside, "cms")
    assert names(folder) == {*others, "cms_run.json"}
    assert len(read_run(folder).monitors[0].records) == 1
