# SPDX-License-Identifier: Apache-2.0
import json

from _helpers.runs import make_run


def test_report_makes_the_page_again(tmp_path, genmonitor):
    folder = make_run(tmp_path / "run")
    status, said, _ = genmonitor("report", tmp_path / "run")
    assert (status, said) == (0, f"Report: {folder / 'report.html'}\n")
    assert (folder / "report.html").is_file()


def test_report_as_json_names_the_page(tmp_path, genmonitor):
    folder = make_run(tmp_path / "run")
    _, said, _ = genmonitor("report", tmp_path / "run", "--json")
    assert json.loads(said) == {"report": str(folder / "report.html"), "unreadable": []}


def test_report_refuses_what_is_no_run(tmp_path, genmonitor):
    status, said, complaint = genmonitor("report", tmp_path)
    assert (status, said) == (2, "")
    assert "Expected the folder of a run" in complaint


def test_report_refuses_an_empty_path(genmonitor):
    status, _, complaint = genmonitor("report", "")
    assert status == 2
    assert "argument RUN: expected a path, but got an empty one" in complaint
