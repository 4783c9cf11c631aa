# SPDX-License-Identifier: Apache-2.0
import json
import os
from importlib.metadata import version

import numpy as np
import pytest
from _helpers.runs import PARTITION, VALUES, add_diversity, make_run, record, write_evaluation, write_notes

from genmonitor.evaluation.results import Table
from genmonitor.plotting.pixel_clusters import cluster_map
from genmonitor.report import RunFolder
from genmonitor.report.pictures import render
from genmonitor.report.run import read_run


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


def test_prefix_cannot_leave_the_folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_values("../my cms", VALUES)
    folder.write_notes("../my cms", [{"epoch": None, "step": None, "text": "note"}])
    folder.write_manifest("../my cms", 1, {"evaluation": record(1)})
    folder.write_figures("../my cms", {"clusters": cluster_map([[1, 2]])}, 1)
    assert names(tmp_path) == {"run"}
    (monitor,) = read_run(folder.path).monitors
    assert (monitor.prefix, list(monitor.values.values()), len(monitor.notes)) == ("my_cms", VALUES, 1)
    assert set(monitor.pictures) == {"clusters"}
    folder.start("../my cms")
    assert names(folder.path) == set()


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


def test_write_table_keeps_text_and_numbers(tmp_path):
    table = Table(["prompt", "samples", "share"], [["a cat", np.zeros((2, 2, 3), np.uint8), 0.5]])
    path = RunFolder(tmp_path).write_table("disagreement", "prompts", table, step=1200, epoch=3)
    assert path == tmp_path / "disagreement_prompts_epoch_0003_step_1200.json"
    assert json.loads(path.read_text()) == [{"prompt": "a cat", "share": 0.5}]


def test_declared_values_are_read_by_the_report(tmp_path):
    RunFolder(tmp_path).write_values("cms", VALUES)
    write_evaluation(tmp_path, 1)
    (monitor,) = read_run(tmp_path).monitors
    assert list(monitor.values.values()) == VALUES


def test_write_notes_removes_the_file_without_notes(tmp_path):
    folder = RunFolder(tmp_path / "genmonitor")
    folder.write_notes("cms", [])
    folder.write_notes("cms", [{"epoch": 1, "step": 19, "text": "cluster_2 got worse"}])
    assert json.loads((folder.path / "cms_notes.json").read_text())[0]["text"] == "cluster_2 got worse"
    folder.write_notes("cms", [])
    assert names(folder.path) == set()


def test_write_manifest_adds_the_versions(tmp_path):
    path = RunFolder(tmp_path).write_manifest("cms", 12, {"evaluation": {"image": 0.9}})
    assert path == tmp_path / "cms_evaluation_00012.json"
    written = json.loads(path.read_text())
    assert written["evaluation"] == {"image": 0.9}
    assert written["versions"]["torch"] == version("torch")


def test_write_report_writes_the_page_of_the_folder(tmp_path):
    folder = make_run(tmp_path)
    assert RunFolder(folder).write_report() == folder / "report.html"
    assert "PixelClusterMonitor" in (folder / "report.html").read_text()


def test_every_write_raises_oserror_where_it_cannot(tmp_path):
    (tmp_path / "file").write_text("")
    folder = RunFolder(tmp_path / "file" / "genmonitor")
    for write in (
        lambda: folder.write_values("cms", []),
        lambda: folder.write_notes("cms", [{"text": "note"}]),
        lambda: folder.write_manifest("cms", 1, {}),
        lambda: folder.write_figures("cms", {"clusters": cluster_map([[1]])}, 1),
        lambda: folder.write_table("cms", "prompts", Table(["prompt"], [["a cat"]]), 1),
        folder.write_report,
    ):
        with pytest.raises(OSError):
            write()


def test_start_removes_what_an_earlier_run_left(tmp_path):
    folder = make_run(tmp_path)
    RunFolder(folder).write_figures("cms", {"clusters": cluster_map([[1, 2]])}, 0)
    RunFolder(folder).write_table("cms", "prompts", Table(["prompt"], [["a cat"]]), 9, 0)
    write_notes(folder, [(None, "only 100 real images")])
    PARTITION.save(folder / "regions.npz")
    write_evaluation(folder, 3, partition="regions.npz")
    RunFolder(folder).write_report()
    (folder / "mine.txt").write_text("mine")
    RunFolder(folder).start("cms")
    assert names(folder) == {"mine.txt"}
    RunFolder(tmp_path / "new").start("cms")
    assert not (tmp_path / "new").exists()


def test_start_leaves_other_monitors_alone(tmp_path):
    folder = make_run(tmp_path)
    add_diversity(folder, ["a cat"])
    others = {name for name in names(folder) if name.startswith("diversity_")}
    write_evaluation(folder, 1, prefix="cms_raw", partition="shared.npz")
    RunFolder(folder).write_figures("cms_raw", {"clusters": cluster_map([[1, 2]])}, 0)
    write_evaluation(folder, 3, partition="shared.npz")
    PARTITION.save(folder / "shared.npz")
    RunFolder(folder).start("cms")
    assert names(folder) == {*others, "cms_raw_evaluation_00001.json", "cms_raw_clusters.png", "shared.npz"}


def test_start_removes_no_file_out_of_the_folder(tmp_path):
    folder = make_run(tmp_path / "run")
    outside = tmp_path / "outside.npz"
    PARTITION.save(outside)
    (folder / "cms_link.png").symlink_to(outside)
    for number, name in enumerate(("../../outside.npz", str(outside)), start=1):
        write_evaluation(folder, number, partition=name)
    RunFolder(folder).start("cms")
    assert outside.exists()


def test_start_keeps_the_evaluations_that_a_resumed_run_has(tmp_path):
    folder = make_run(tmp_path, evaluations=5)
    RunFolder(folder).start("cms", keep=3)
    (monitor,) = read_run(folder).monitors
    assert monitor.records == [record(1), record(2), record(3)]
    assert [picture.step for picture in monitor.pictures["samples"]] == [9, 19, 29]
    assert (monitor.partition, set(monitor.pictures)) == (PARTITION, {"samples", "cka"})


@pytest.mark.parametrize("content", ["{half", "[]", '{"evaluation": 3}', '{"evaluation": {"step": "x"}}'])
@pytest.mark.parametrize("keep", [0, 2])
def test_start_can_do_with_broken_manifests(tmp_path, content, keep):
    folder = make_run(tmp_path)
    (folder / "cms_evaluation_00002.json").write_text(content)
    RunFolder(folder).start("cms", keep)
    left = sorted(path.name for path in folder.glob("cms_evaluation_*.json"))
    assert left == [f"cms_evaluation_{number:05d}.json" for number in range(1, keep + 1)]


def test_a_second_run_without_logger_shows_its_own_evaluations(tmp_path):
    folder = make_run(tmp_path, evaluations=5)
    RunFolder(folder).start("cms")
    RunFolder(folder).write_values("cms", VALUES)
    write_evaluation(folder, 1)
    (monitor,) = read_run(folder).monitors
    assert (monitor.records, monitor.pictures, monitor.partition) == ([record(1)], {}, None)
