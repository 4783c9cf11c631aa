# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import numpy as np
import pytest

from genmonitor.evaluation.findings import Area, FaultKind, Finding
from genmonitor.evaluation.results import Table
from genmonitor.evaluation.values import ValueSpec
from genmonitor.report.contents import (
    Note,
    as_bands,
    as_findings,
    as_notes,
    as_number,
    as_record,
    as_values,
    find_prefixes,
    own_files,
    read_tables,
)


@pytest.mark.parametrize("value", [None, True, "0.5", [0.5], {}, float("nan"), float("-inf"), 10**400])
def test_as_number_refuses_what_is_no_finite_number(value):
    assert as_number(value) is None
    assert as_record({"a": value, "b": 0.5, "c": 3}) == {"b": 0.5, "c": 3}


@pytest.mark.parametrize("content", [None, 7, "text", [], [[]], {}])
def test_everything_else_gives_nothing(content):
    assert as_record(content) == as_bands(content) == {}
    assert as_values(content) == as_findings(content) == []


def test_declarations_that_are_not_whole_are_left_out():
    whole = ValueSpec("mmd", scale="log", detail=True)
    broken = [
        {"key": "a", "scale": "upside down"},
        {"scale": "log"},
        {"key": "b", "chart": ["c"]},
        3,
        None,
        {"key": ""},
    ]
    assert as_values([whole.to_dict() | {"from": "a later version"}, *broken]) == [whole]


def test_findings_that_are_not_whole_are_left_out():
    whole = Finding("Darker.", Area("image"), "darker", None, False, kinds=(FaultKind("darker", 0.1, "", 0.5),))
    broken = [whole.to_dict() | change for change in ({"text": 3}, {"area": "image"}, {"kinds": [3]})]
    assert as_findings([whole.to_dict(), *broken, {"text": "half"}, None]) == [whole]


def test_as_notes_keeps_those_with_a_text():
    notes = [{"text": "a", "epoch": 1, "step": 9}, {"text": "b", "epoch": None}, {"epoch": 2}, "c", {"text": 7}]
    assert as_notes(notes) == [Note("a", 1, 9), Note("b"), Note("7")]


def test_read_tables_reads_rows_by_column(tmp_path):
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps([{"prompt": "p", "score": 1.5}, {"other": 2}]))
    (table,) = read_tables([path])
    assert (table.columns, table.rows) == (["prompt", "score", "other"], [["p", 1.5, None], [None, None, 2]])


def test_read_tables_takes_the_last_of_those_by_epoch(tmp_path):
    for epoch, step in ((2, 900), (10, 1000), (3, 950)):
        path = tmp_path / f"changed_epoch_{epoch:04d}_step_{step}.json"
        path.write_text(json.dumps([{"prompt": f"of {epoch}"}]))
    (table,) = read_tables(sorted(tmp_path.iterdir()))
    assert (table.name, table.rows) == ("changed, epoch 10", [["of 10"]])


def test_read_tables_cuts_long_ones(tmp_path):
    (tmp_path / "long.json").write_text(json.dumps([{"number": 7}] * 10_000))
    (table,) = read_tables(tmp_path.iterdir())
    assert len(table.rows) == 500


OTHERS = {
    "a.json": b'{"a": 1}',
    "b.json": b"[]",
    "c.json": b"7",
    "d.json": b"half a li",
    "e.json": b'{"columns": ["a"], "data": 5}',
    "f.json": b"[" * 9999,
    "g.json": b"\xff",
    "h.json": b"[1, 2]",
}


@pytest.mark.parametrize("name", OTHERS)
def test_read_tables_leaves_out_other_files(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(OTHERS[name])
    assert read_tables([path]) == []


def test_without_pictures_keeps_text_and_numbers():
    picture = np.zeros((2, 2, 3), np.uint8)
    table = Table(["prompt", "samples", "share"], [["a cat", picture, 0.5], ["a dog", None, 0.25]])
    assert table.without_pictures() == Table(["prompt", "share"], [["a cat", 0.5], ["a dog", 0.25]])
    assert Table(["prompt"], []).without_pictures() == Table(["prompt"], [])


def test_own_files_leaves_out_links_folders_and_hidden_files(tmp_path):
    (tmp_path / "b.png").write_bytes(b"")
    (tmp_path / "a.json").write_bytes(b"")
    (tmp_path / ".a.json.7.part").write_bytes(b"")
    (tmp_path / "link.png").symlink_to(tmp_path / "b.png")
    (tmp_path / "dangling.png").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder.json").mkdir()
    assert [path.name for path in own_files(tmp_path)] == ["a.json", "b.png"]
    assert own_files(tmp_path / "nothing") == []


def test_find_prefixes_knows_monitors_by_their_json_files():
    files = ["cms_evaluation_00001.json", "cms_raw_values.json", "x_notes.json", "y_samples.png", "z_prompts.json"]
    assert find_prefixes(map(Path, files)) == {"cms", "cms_raw", "x"}
