# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from genmonitor.cli.results import (
    Measurement,
    _value_table,
    as_table,
    check_out,
    report_line,
    write_measurement,
    write_result,
)
from genmonitor.evaluation import DiversityEvaluator
from genmonitor.findings.finding import Area, Finding
from genmonitor.findings.values import ValueSpec


def fill(folder):
    finding = Finding("2 modes.", Area("all images"), "", "vendi")
    of = [ValueSpec("vendi")], "9 images", {}, {}, ["a note"], DiversityEvaluator()
    found = Measurement("Variety", [finding], {"vendi": 2.0}, *of)
    write_measurement(folder, "diversity", found, {"monitor": "diversity", "generated_images": "a"})


def test_each_result_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "diversity" / "version_7").mkdir(parents=True)
    reports = [write_result(None, "diversity", "diversity", fill)["report"] for _ in range(2)]
    assert reports == [f"runs/diversity/version_{number}/genmonitor/report.html" for number in (8, 9)]
    assert "A note." in (tmp_path / reports[0]).read_text()


def test_a_folder_that_is_named_holds_the_last_result_and_says_so(tmp_path):
    first = write_result(tmp_path / "out", "diversity", "diversity", fill)
    (tmp_path / "out" / "genmonitor" / "diversity_modes.json").write_text("[]")
    (tmp_path / "out" / "genmonitor" / "mine.txt").write_text("notes")
    second = write_result(tmp_path / "out", "diversity", "diversity", fill)
    assert report_line(first).endswith("report.html")
    assert report_line(second).endswith("report.html, replacing an earlier one")
    assert {path.name for path in (tmp_path / "out" / "genmonitor").iterdir()} == {
        "diversity_run.json",
        "history.csv",
        "mine.txt",
        "report.html",
    }


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_is_interrupted_leaves_nothing(tmp_path, error):
    def stop(folder):
        fill(folder)
        raise error

    with pytest.raises(error):
        write_result(tmp_path / "out", "diversity", "diversity", stop)
    assert list(tmp_path.iterdir()) == []


def test_rows_become_a_table():
    table = as_table([{"mode": 1, "samples": ["a", "b"], "share": 0.25, "p": None}])
    assert (table.columns, table.rows) == (["mode", "samples", "share", "p"], [[1, "a; b", "0.250", ""]])


@pytest.mark.parametrize(
    ("key", "of", "name"), [("real_vendi", "vendi", "real"), ("baseline_total", "total", "by chance")]
)
def test_a_baseline_is_called_what_it_is(key, of, name):
    specs = [ValueSpec(of), ValueSpec(key, baseline_of=of)]
    found = Measurement("Variety", [], {of: 2.0, key: 3.0}, specs, "9 images", {}, {}, [], DiversityEvaluator())
    assert _value_table(found).columns == ["", "value", name]


@pytest.mark.parametrize("place", ["/proc/x", "file/x", "file"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(ValueError, match="Expected --out to be a folder"):
        check_out(Path(place), ())
    check_out(Path("new/folder"), ())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("out", [[], ["--out", "a"], ["--out", "a/result"], ["--out", "link/result"]])
@pytest.mark.parametrize("command", [["compare", "a", "b"], ["compare", "b", "a"], ["diversity", "b", "--real", "a"]])
def test_a_result_inside_a_folder_of_images_is_refused(genmonitor, tmp_path, monkeypatch, command, out):
    """The next command would read its pictures as images."""
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    words = [word if out or word != "a" else "." for word in command]  # by default in the working directory
    status, _, complaint = genmonitor(*words, *out)
    assert status == 2
    assert "Expected --out to be apart from the images, but" in complaint
