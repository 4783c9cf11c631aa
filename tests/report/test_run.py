# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from _helpers.runs import PARTITION, add_diversity, check, make_run, write_check

from genmonitor.report.run import find_folder, read_run


def test_a_run_is_found_by_its_folder_or_by_that_of_the_monitors(tmp_path):
    folder = make_run(tmp_path / "logs" / "version_0")
    assert find_folder(tmp_path / "logs" / "version_0") == find_folder(folder) == folder


def test_a_folder_without_manifests_is_refused_naming_the_runs_below(tmp_path):
    make_run(tmp_path / "logs" / "version_0")
    with pytest.raises(
        FileNotFoundError, match=r"manifests of a monitor, but got .*logs\. There are runs below.*sion_0"
    ):
        find_folder(tmp_path / "logs")
    with pytest.raises(FileNotFoundError, match="Train with a monitor first"):
        find_folder(tmp_path / "nothing")


def test_everything_that_a_monitor_left_is_read(tmp_path):
    ((monitored,), tables) = read_run(make_run(tmp_path, checks=3))
    assert (monitored.prefix, monitored.manifest["monitor"]) == ("cms", "PixelClusterMonitor")
    assert monitored.checks == [check(1), check(2), check(3)]
    assert monitored.partition == PARTITION
    assert [(p.epoch, p.step) for p in monitored.pictures["samples"]] == [(0, 9), (1, 19), (2, 29)]
    assert [p.epoch for p in monitored.pictures["cka"]] == [None]
    assert tables == []


def test_two_monitors_stay_apart(tmp_path):
    folder = make_run(tmp_path)
    add_diversity(folder, ["a cat", "a dog"], checks=2)
    monitored, (prompts,) = read_run(folder)
    assert {m.prefix: len(m.checks) for m in monitored} == {"cms": 3, "diversity": 2}
    assert {m.prefix: m.partition for m in monitored} == {"cms": PARTITION, "diversity": None}
    assert prompts.rows == [[0, "a cat"], [1, "a dog"]]


def test_checks_from_before_the_curves_started_anew_are_left_out(tmp_path):
    folder = make_run(tmp_path, checks=4)
    write_check(folder, 1, check=check(7))
    write_check(folder, 2, check=check(8))
    ((monitored,), _) = read_run(folder)
    assert [c["epoch"] for c in monitored.checks] == [6, 7]


TABLES = {
    "a.json": (["x", "y"], ["prompt", ""], [[0, "x"], [1, "y"]]),
    "b.json": ([{"prompt": "p", "score": 1.5}, {"other": 2}], None, [["p", 1.5, None], [None, None, 2]]),
    "c.json": ({"columns": ["u"], "data": [["v"]]}, None, [["v"]]),
    "d.json": ({"columns": ["u"], "rows": [["w"]]}, None, [["w"]]),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_any_usual_shape_are_read(tmp_path, name):
    folder = make_run(tmp_path)
    content, _, rows = TABLES[name]
    (folder / name).write_text(json.dumps(content))
    (_, (table,)) = read_run(folder)
    assert table.rows == rows


def test_a_csv_file_with_a_heading_is_a_table(tmp_path):
    folder = make_run(tmp_path)
    (folder / "changed_most.csv").write_text('prompt,change\n"a cat, asleep",0.5\n')
    (_, (table,)) = read_run(folder)
    assert (table.name, table.columns, table.rows) == ("changed most", ["prompt", "change"], [["a cat, asleep", "0.5"]])


def test_of_a_table_for_each_check_the_last_is_read(tmp_path):
    folder = make_run(tmp_path)
    for epoch, step in ((2, 900), (10, 1000), (3, 950)):
        (folder / f"changed_epoch_{epoch:04d}_step_{step}.json").write_text(json.dumps([{"prompt": f"of {epoch}"}]))
    (_, (table,)) = read_run(folder)
    assert (table.name, table.rows) == ("changed, epoch 10", [["of 10"]])


@pytest.mark.parametrize("content", ['{"a": 1}', "[]", "7", "half a li", '{"columns": ["a"], "data": 5}'])
def test_other_json_is_no_table(tmp_path, content):
    folder = make_run(tmp_path)
    (folder / "other.json").write_text(content)
    assert read_run(folder)[1] == []
