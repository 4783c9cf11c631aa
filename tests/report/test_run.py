# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from _helpers.runs import (
    PARTITION,
    VALUES,
    add_diversity,
    changed,
    make_run,
    record,
    write_evaluation,
    write_notes,
    write_picture,
)

from genmonitor.findings.finding import Area, Finding
from genmonitor.findings.tables import Table
from genmonitor.report.run import MonitorRun, Note, find_folder, read_run


def test_find_folder_takes_the_run_or_the_folder_itself(tmp_path):
    folder = make_run(tmp_path / "logs" / "version_0")
    assert find_folder(tmp_path / "logs" / "version_0") == find_folder(folder) == folder


def test_find_folder_takes_the_last_version(tmp_path):
    folder = make_run(tmp_path)
    for version in ("genmonitor-v2", "genmonitor-v10", "genmonitor-validate"):
        folder.rename(tmp_path / version)
        make_run(tmp_path)
    (tmp_path / "genmonitor-v11").mkdir()
    assert find_folder(tmp_path) == tmp_path / "genmonitor-v10"


def test_find_folder_names_the_runs_below(tmp_path):
    make_run(tmp_path / "logs" / "version_0")
    with pytest.raises(FileNotFoundError, match=r"a monitor evaluated, but got .*logs\. There are runs below.*sion_0"):
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
    assert (monitor.partition, list(monitor.values.values())) == (PARTITION, VALUES)
    assert [(p.epoch, p.step) for p in monitor.pictures["samples"]] == [(0, 9), (1, 19), (2, 29)]
    assert [p.epoch for p in monitor.pictures["cka"]] == [None]
    assert monitor.notes == [Note("only 100 real images"), Note("cluster_2 got worse", 1, 19, "cluster_2")]
    assert run.unreadable == []


def test_read_run_keeps_monitors_apart(tmp_path):
    folder = make_run(tmp_path)
    add_diversity(folder, ["a cat", "a dog"], evaluations=2)
    cms, diversity = read_run(folder).monitors
    assert (len(cms.records), cms.partition, cms.tables) == (3, PARTITION, {})
    assert (len(diversity.records), diversity.partition) == (2, None)
    assert diversity.tables == {"table": Table(["prompt"], [["a cat"], ["a dog"]])}


def test_read_run_keeps_prefixes_apart_that_begin_alike(tmp_path):
    folder = make_run(tmp_path)
    write_evaluation(folder, 1, prefix="cms_raw")
    write_picture(folder / "cms_raw_samples_epoch_0000_step_9.png")
    cms, raw = read_run(folder).monitors
    assert set(cms.pictures) == {"samples", "cka"}
    assert set(raw.pictures) == {"samples"}


def test_picture_of_a_step_that_was_not_evaluated_is_left_out(tmp_path):
    folder = make_run(tmp_path, evaluations=2)
    write_picture(folder / "cms_samples_epoch_0002_step_29.png")
    assert [p.step for p in read_run(folder).monitors[0].pictures["samples"]] == [9, 19]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{half", "Expecting property name"),
        ("", "Expecting value"),
        ("\udcff", "codec can't decode"),
        ("[" * 99999, "recursion"),
        ("[]", "KeyError: 'evaluations'"),
        ({"evaluations": 3}, "TypeError"),
        ({"evaluations": []}, "`evaluations` is empty"),
        ({"evaluations": [3]}, "TypeError"),
        ({"evaluations": [{"message": ""}]}, "KeyError: 'values'"),
        ({"evaluations": [{"values": {"image": "high"}, "message": ""}]}, "TypeError: must be real number"),
        ({"evaluations": [{"values": {"image": 10**400}, "message": ""}]}, "OverflowError"),
        ({"declared": [{"key": "a", "scale": "upside down"}]}, "Expected `scale` of a"),
        ({"findings": [{"text": "dark"}]}, "KeyError"),
        ({"baseline": {"image": "wide"}}, "argument 2 is longer"),
        ({"stability": "high"}, "AttributeError"),
        ({"best_key": ["image"]}, "`best_key` is ['image'], no name"),
        ({"evaluations": [{"values": {}, "message": "", "global_step": "8"}]}, "`global_step` is '8', no number"),
        ({"stability": {"cluster_1": [0.9]}}, "TypeError: must be real number"),
        ({"notes": [{"text": ["few"]}]}, "Expected `text` of Note to be str, but got ['few']."),
        ({"notes": [{"text": "few", "epoch": "first"}]}, "Expected `epoch` of Note to be float or NoneType"),
        ({"declared": [{"key": "a", "label": {}}]}, "Expected `label` of ValueSpec to be str"),
        ({"notes": [{"words": "few"}]}, "unexpected keyword argument"),
        ({"tables": {"prompts": [1]}}, "TypeError"),
        ({"prefix": "mine"}, "but cms_run.json is of mine"),
        ({"prefix": None}, "TypeError"),
    ],
    ids=str,
)
def test_file_that_is_not_as_it_was_written_is_named_and_the_others_are_read(tmp_path, content, why):
    folder = make_run(tmp_path)
    add_diversity(folder, ["a cat"])
    if isinstance(content, dict):
        changed(folder, **content)
    else:
        (folder / "cms_run.json").write_bytes(content.encode(errors="surrogateescape"))
    run = read_run(folder)
    assert [monitor.prefix for monitor in run.monitors] == ["diversity"]
    (said,) = run.unreadable
    assert "cms_run.json" in said
    assert why in said
    assert "It was edited or damaged: take it out of the folder" in said


@pytest.mark.parametrize(
    "mask",
    [
        {"shape": [8, 8], "runs": [1, 2, 3]},
        {"shape": [8, 8], "runs": [0, 10**12]},
        {"shape": [10**6, 10**6], "runs": [10**12]},
        {"shape": [8, 8], "runs": []},
        {"shape": [1, 3], "runs": [2.5, 0.5]},
        {"shape": [1, 3], "runs": [-1, 4]},
        {"shape": [64], "runs": [64]},
    ],
    ids=str,
)
def test_finding_whose_mask_does_not_fit_is_named(tmp_path, mask):
    folder = make_run(tmp_path)
    finding = Finding("Too dark.", Area("image"), "too dark", None).to_dict()
    changed(folder, findings=[finding | {"area": finding["area"] | {"mask": mask}}])
    run = read_run(folder)
    assert (run.monitors, len(run.unreadable)) == ([], 1)


@pytest.mark.parametrize("value", [["bad"], {"bad": 1}, 3])
@pytest.mark.parametrize("name", ["text", "verdict", "measure", "fine", "cause", "remedy", "detail"])
def test_finding_whose_field_is_of_another_type_is_named(tmp_path, name, value):
    folder = make_run(tmp_path)
    finding = Finding("Too dark.", Area("image"), "too dark", None).to_dict() | {name: value}
    changed(folder, findings=[finding])
    (said,) = read_run(folder).unreadable
    assert f"Expected `{name}` of Finding to be " in said


def test_read_run_names_a_partition_that_cannot_be_read(tmp_path):
    folder = make_run(tmp_path)
    (folder / "cms_partition.npz").write_text("{half")
    run = read_run(folder)
    assert run.monitors[0].partition is None
    assert run.unreadable[0].startswith("cms_partition.npz: ")


@pytest.mark.parametrize("band", [[0.9, float("nan"), 0.99], [0.9, None, 0.99]])
def test_band_that_is_not_finite_is_left_out_alone(tmp_path, band):
    folder = make_run(tmp_path, evaluations=1)
    changed(folder, baseline={"cluster_1": band, "cluster_2": [0.96, 0.97, 0.98]})
    assert read_run(folder).monitors[0].baseline == {"cluster_2": (0.96, 0.97, 0.98)}


def test_read_run_follows_no_link(tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps([{"password": "hunter2"}]))
    write_picture(tmp_path / "secret.png")
    PARTITION.save(tmp_path / "secret.npz")
    folder = make_run(tmp_path / "run")
    (folder / "cms_partition.npz").unlink()
    links = {"other_run.json": secret, "cms_secret.png": tmp_path / "secret.png"}
    for name, target in (links | {"cms_partition.npz": tmp_path / "secret.npz"}).items():
        (folder / name).symlink_to(target)
    run = read_run(folder)
    (monitor,) = run.monitors
    assert (run.unreadable, monitor.partition) == ([], None)
    assert "secret" not in monitor.pictures


@pytest.mark.parametrize("name", ["../../other.npz", "/etc/passwd", 7, None])
def test_read_run_takes_no_partition_from_elsewhere(tmp_path, name):
    folder = make_run(tmp_path / "run")
    PARTITION.save(tmp_path / "other.npz")
    changed(folder, partition=name)
    assert read_run(folder).monitors[0].partition is None


def test_evaluation_is_found_by_the_step_of_its_checkpoint(tmp_path):
    run = MonitorRun.read(make_run(tmp_path) / "cms_run.json")
    at = run.manifest_at(19)
    assert (at["monitor"], at["values"]) == ("PixelClusterMonitor", record(2))
    assert run.repeatable(19) == {key: x for key, x in record(2).items() if key not in NOT_REPEATABLE}
    with pytest.raises(ValueError, match=r"at one of the steps 9, 19, 29, but got one of step 20"):
        run.manifest_at(20)


NOT_REPEATABLE = {"epoch", "step", "sampling_seconds", "metric_seconds", "images_seen"}
