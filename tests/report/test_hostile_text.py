# SPDX-License-Identifier: Apache-2.0
"""Text of the user's, whatever is in it, stops no file from being written, and acts nowhere as markup."""

import csv
import json

import numpy as np
import pytest
from _helpers.loggers import AnyLogger
from _helpers.runs import VALUES, record

from genmonitor._io import as_json, clean, write_json, write_text
from genmonitor.evaluation.results import Alert, ShownImages
from genmonitor.findings.finding import Area, Finding
from genmonitor.findings.tables import Table
from genmonitor.findings.values import ValueSpec
from genmonitor.loggers.publisher import Publisher
from genmonitor.report import RunFolder, write_report
from genmonitor.report.run import read_run

TEXTS = {
    "half an emoji": "a cat \ud83d",
    "a byte of a file name": "cat\udcff.png",
    "nul": "a\0b",
    "control characters": "\x1b[31mred\x07\x08\x7f",
    "right to left": "\u202egnp.exe \u2067x",
    "a line of a megabyte": "x" * 2**20,
    "markup": "</script><script>alert(1)</script>",
    "a formula": '=HYPERLINK("http://a","b")',
    "lines": "a\r\nb\u2028c",
}
TEXT = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)


def written(folder, text):
    """Write a run with a text wherever there may be one of the user's."""
    key = f"{text[:40]}_key"
    finding = Finding(text, Area(text, text), text, key, fine=False, cause=text)
    tiles = np.zeros((1, 3, 4, 3))
    folder.write_images("cms", "images", ShownImages(tiles, [text]), 9, 0)
    return folder.write_run(
        "cms",
        fixed={"title": text, "monitor": text, "settings": {text: [text]}, "prompts": [text]},
        evaluations=[{"values": record(1) | {key: 0.5}, "message": text, "wrong": [text]}],
        declared=[*VALUES, ValueSpec(key, text, label=text)],
        findings=[finding],
        notes=[{"text": text}, {"text": text, "epoch": 0, "step": 9, "alert": text}],
        tables={text: Table([text], [[text]])},
    )


@TEXT
def test_run_page_and_history_are_written_whatever_is_in_the_text(tmp_path, text):
    folder = RunFolder(tmp_path / "genmonitor")
    content = json.loads(written(folder, text).read_bytes().decode())
    assert content["title"] == content["settings"][clean(text)][0] == clean(text)
    page = folder.write_report().read_bytes().decode()
    assert "<script>alert(1)" not in page
    run = read_run(folder.path)
    assert run.unreadable == []
    assert run.monitors[0].strips["images"][0].about["captions"] == [clean(text)]
    assert run.monitors[0].findings[0].text == clean(text)
    with (folder.path / "history.csv").open(newline="", encoding="utf-8") as file:
        head, row = csv.reader(file)
    assert not [cell for cell in (*head, *row) if cell.startswith(("=", "+", "@", "\t", "\r"))]


@TEXT
@pytest.mark.parametrize("write", [write_text, write_json], ids=["text", "json"])
def test_every_file_of_text_is_utf_8_and_whole(tmp_path, write, text):
    write(tmp_path / "file", text)
    read = (tmp_path / "file").read_bytes().decode("utf-8")
    assert (read if write is write_text else json.loads(read)) == clean(text)
    assert text == clean(text) or "\\ud" in clean(text)


@TEXT
def test_loggers_get_text_that_utf_8_can_hold(tmp_path, text):
    got = []

    class Writer:
        def add_figure(self, *args, **kwargs):
            pass

        def add_text(self, tag, told, global_step=None):
            got.append(told.encode("utf-8"))  # as a file of events holds it

    said = []
    publisher = Publisher("Name", "cms", on_alert=said.append, warn=lambda _: None, inform=lambda _: None)
    publisher.start(tmp_path, [AnyLogger(Writer())])
    publisher.publish_alert(Alert(text, text), text)
    assert len(got) == 1
    assert said == [text]


def test_json_has_no_number_that_no_reader_takes():
    assert as_json({"a": [float("nan"), (1.5, float("-inf"))]}, indent=None) == '{"a": [null, [1.5, null]]}'


@TEXT
def test_page_is_written_again_where_the_run_was_written_by_others(tmp_path, text):
    folder = RunFolder(tmp_path)
    path = written(folder, "plain")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"title": text}))  # with half an emoji as it is
    assert write_report(folder.path).read_bytes().decode()
