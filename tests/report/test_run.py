# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from _helpers.runs import (
    PARTITION,
    add_diversity,
    make_run,
    record,
    write_evaluation,
    write_notes,
    write_picture,
)

from genmonitor.report.contents import Note
from genmonitor.report.run import find_folder, read_run


def test_find_folder_takes_the_run_or_the_folder_itself(tmp_path):
    folder = make_run(tmp_path / "logs" / "version_0")
    assert find_folder(tmp_path / "logs" / "version_0") == find_folder(folder) == folder


def test_find_folder_names_the_runs_below(tmp_path):
    make_run(tmp_path / "logs" / "version_0")
    with pytest.raises(
        FileNotFoundError, match=r"manifests of a monitor, but got .*logs\. There are runs below.*sion_0"
    ):
        find_folder(tmp_path / "logs")
    with pytest.raises(FileNotFoundError, match="Train with a monitor first"):
        find_folder(tmp_path / "nothing")


def test_read_run_reads_all_that_a_monitor_left(tmp_path):
    folder = make_run(tmp_path, evaluations=3)
    write_notes(folder, [(None, "only 100 real images"), (2, "cluster_2 got worse")])
    run = read_run(folder)
    (monitor,) = run.monitors
    assert (monitor.prefix, monitor.manifest["monitor"]) == ("cms", "PixelClusterMonitor")
    assert monitor.records == [record(1), record(2), record(3)]
    assert monitor.partition == PARTITION
    assert [(p.epoch, p.step) for p in monitor.pictures["samples"]] == [(0, 9), (1, 19), (2, 29)]
    assert [p.epoch for p in monitor.pictures["cka"]] == [None]
    assert monitor.notes == [Note("only 100 real images"), Note("cluster_2 got worse", 1, 19)]
    assert (run.tables, run.unreadable) == ([], [])


def test_read_run_keeps_monitors_apart(tmp_path):
    folder = make_run(tmp_path)
    add_diversity(folder, ["a cat", "a dog"], evaluations=2)
    run = read_run(folder)
    assert {m.prefix: len(m.records) for m in run.monitors} == {"cms": 3, "diversity": 2}
    assert {m.prefix: m.partition for m in run.monitors} == {"cms": PARTITION, "diversity": None}
    assert [table.rows for table in run.tables] == [[["a cat"], ["a dog"]]]


def test_read_run_keeps_prefixes_apart_that_begin_alike(tmp_path):
    folder = make_run(tmp_path)
    write_evaluation(folder, 1, prefix="cms_raw")
    write_picture(folder / "cms_raw_samples_epoch_0000_step_9.png")
    cms, raw = read_run(folder).monitors
    assert set(cms.pictures) == {"samples", "cka"}
    assert set(raw.pictures) == {"samples"}


def test_read_run_leaves_out_what_was_before_a_fresh_start(tmp_path):
    folder = make_run(tmp_path, evaluations=4)
    write_evaluation(folder, 1, evaluation=record(7))
    write_evaluation(folder, 2, evaluation=record(8))
    (monitor,) = read_run(folder).monitors
    assert [r["epoch"] for r in monitor.records] == [6, 7]


@pytest.mark.parametrize("content", ["{half", "[]", '{"monitor": "x"}', '{"evaluation": 3}', "", "\udcff", "[" * 9999])
def test_read_run_names_broken_manifests_and_reads_the_others(tmp_path, content):
    folder = make_run(tmp_path)
    broken = folder / "cms_evaluation_00002.json"
    broken.write_bytes(content.encode(errors="surrogateescape"))
    run = read_run(folder)
    assert [r["epoch"] for r in run.monitors[0].records] == [0, 2]
    assert run.unreadable == [broken.name]


def test_read_run_names_other_broken_files(tmp_path):
    folder = make_run(tmp_path)
    for name in ("cms_values.json", "cms_notes.json", "cms_partition.npz"):
        (folder / name).write_text("{half")
    run = read_run(folder)
    (monitor,) = run.monitors
    assert (monitor.values, monitor.notes, monitor.partition) == ({}, [], None)
    assert sorted(run.unreadable) == ["cms_notes.json", "cms_partition.npz", "cms_values.json"]


def test_read_run_can_do_without_any_good_manifest(tmp_path):
    folder = make_run(tmp_path, evaluations=1)
    (folder / "cms_evaluation_00001.json").write_text("{half")
    run = read_run(folder)
    assert (run.monitors, run.unreadable) == ([], ["cms_evaluation_00001.json"])


@pytest.mark.parametrize(
    "band", [None, [0.9, float("nan"), 0.99], [0.9, 0.99], "wide", [0.9, None, 0.99], [10**400] * 3]
)
def test_read_run_leaves_out_a_broken_band_alone(tmp_path, band):
    folder = make_run(tmp_path, evaluations=1)
    write_evaluation(folder, 1, baseline={"cluster_1": band, "cluster_2": [0.96, 0.97, 0.98]})
    (monitor,) = read_run(folder).monitors
    assert monitor.baseline == {"cluster_2": (0.96, 0.97, 0.98)}


def test_read_run_follows_no_link(tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps([{"password": "hunter2"}]))
    write_picture(tmp_path / "secret.png")
    PARTITION.save(tmp_path / "secret.npz")
    folder = make_run(tmp_path / "run")
    (folder / "cms_partition.npz").unlink()
    links = {"table.json": secret, "cms_notes.json": secret, "cms_secret.png": tmp_path / "secret.png"}
    for name, target in (links | {"cms_partition.npz": tmp_path / "secret.npz"}).items():
        (folder / name).symlink_to(target)
    run = read_run(folder)
    (monitor,) = run.monitors
    assert (run.tables, monitor.notes, monitor.partition) == ([], [], None)
    assert "secret" not in monitor.pictures


def test_read_run_takes_no_partition_from_elsewhere(tmp_path):
    folder = make_run(tmp_path / "run")
    PARTITION.save(tmp_path / "other.npz")
    for name in ("../../other.npz", str(tmp_path / "other.npz"), 7):
        write_evaluation(folder, 3, partition=name)
        assert read_run(folder).monitors[0].partition is None
