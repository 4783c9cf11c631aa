# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from rich.console import Console

from genmonitor.cli.results import (
    Measurement,
    as_table,
    check_out,
    closing_lines,
    shown_finding,
    shown_map,
    shown_result,
    shown_table,
    write_measurement,
    write_result,
)
from genmonitor.evaluation.findings import Area, Finding
from genmonitor.evaluation.results import Table
from genmonitor.evaluation.values import ValueSpec
from genmonitor.plotting.style import cluster_color


def fill(folder):
    finding = Finding("2 modes.", Area("all images"), "", "vendi")
    found = Measurement("Variety", [finding], {"vendi": 2.0}, [ValueSpec("vendi")], "9 images", {}, {}, ["a note"])
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
    assert "replacing" not in closing_lines(first | {"notes": []})[-1]
    assert closing_lines(second | {"notes": []})[-1].endswith("report.html, replacing an earlier one")
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
    table = as_table([{"mode": 1, "samples": ["a", "b"]}])
    assert (table.columns, table.rows) == (["mode", "samples"], [[1, "a; b"]])


def rendered(what):
    console = Console(force_terminal=True, color_system="truecolor", width=80)
    with console.capture() as captured:
        console.print(what)
    return captured.get()


def test_map_has_the_colors_of_the_figures():
    text = shown_map([[1, 1, 2, 0], [1, 1, 2, 2]])
    assert [set(line) for line in text.plain.split("\n")] == [{*"12·"}, {*"12"}]
    said = rendered(text)
    for label, symbol in ((1, "1"), (2, "2")):
        red, green, blue = (int(cluster_color(label)[i : i + 2], 16) for i in (1, 3, 5))
        assert f"\x1b[38;2;{red};{green};{blue}m{symbol}" in said


def test_table_marks_regions_in_their_colors_and_bad_ones_red():
    table = Table(["region", "sites"], [["cluster_1", 9], ["cluster_2", 12]])
    text = shown_table(table, {"cluster_1": 1, "cluster_2": 2}, ["cluster_2"])
    said = rendered(text)
    red = next(line for line in said.splitlines() if "12" in line)
    fine = next(line for line in said.splitlines() if "cluster_1" in line)
    assert "\x1b[31m" in red
    assert "\x1b[31m" not in fine
    assert "\x1b[38;2;0;114;178mcluster_1" in fine  # cluster_color(1)
    assert text.plain.splitlines() == ["region     sites", "cluster_1      9", "cluster_2     12"]


def test_cells_are_text_and_never_markup():
    assert "[red]x[/red]" in rendered(shown_table(Table(["name"], [["[red]x[/red]"]])))
    assert "[red]x[/red]" in rendered(shown_finding("[red]x[/red]", bad=False))


@pytest.mark.parametrize("place", ["/proc/x", "file/x", "file"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(ValueError, match="Expected --out to be a folder"):
        check_out(Path(place))
    check_out(Path("new/folder"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_result_is_the_same_text_in_a_pipe_and_in_a_terminal():
    result = {"finding": "2 modes.", "notes": ["a note"], "report": "page", "replaced": False}
    text = shown_result(result, lambda _: [Table(["mode"], [[1]])])
    assert text.plain == "2 modes.\n\nmode\n   1\n\nNote: A note.\nReport: page"
