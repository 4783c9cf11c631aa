# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest

from genmonitor.evaluation.results import Table
from genmonitor.report.tables import read_tables, without_pictures


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
    assert without_pictures(table) == Table(["prompt", "share"], [["a cat", 0.5], ["a dog", 0.25]])
    assert without_pictures(Table(["prompt"], [])) == Table(["prompt"], [])
