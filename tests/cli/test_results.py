# SPDX-License-Identifier: Apache-2.0
import pytest

from genmonitor.cli.results import as_table, closing_lines, write_notes, write_result
from genmonitor.evaluation.values import ValueSpec

MANIFEST = {"monitor": "diversity", "evaluation": {"vendi": 2.0}, "generated_images": "a"}


def fill(folder):
    folder.write_values("diversity", [ValueSpec("vendi")])
    write_notes(folder, "diversity", ["a note"])
    folder.write_manifest("diversity", 1, MANIFEST)


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
    assert "in place of" not in closing_lines(first | {"notes": []})[-1]
    assert closing_lines(second | {"notes": []})[-1].endswith("report.html, in place of an earlier one")
    assert {path.name for path in (tmp_path / "out" / "genmonitor").iterdir()} == {
        "diversity_evaluation_00001.json",
        "diversity_notes.json",
        "diversity_values.json",
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
    table = as_table([{"mode": 1, "samples": ["a", "b"]}])
    assert (table.columns, table.rows) == (["mode", "samples"], [[1, "a; b"]])
