# SPDX-License-Identifier: Apache-2.0
import re

import pytest
import torch
from rich.console import Console

from genmonitor.cli.results import (
    Measurement,
    as_table,
    block_map,
    closing_lines,
    colored_table,
    with_finding,
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


def colors(text, line):
    """The upper and the lower color of each character of a line of half blocks."""
    part = text.split("\n")[line]
    return [
        tuple(re.findall("#[0-9A-F]{6}", str(part.get_style_at_offset(Console(), i)).upper())) for i in range(len(part))
    ]


def test_map_has_two_rows_of_sites_in_a_line():
    labels = torch.zeros(16, 16, dtype=torch.long)
    labels[0] = 1
    labels[1, 8:] = 2
    lines = block_map(labels.tolist()).plain.split("\n")
    assert lines == ["▀" * 16] * 8
    found = colors(block_map(labels.tolist()), 0)
    assert found[0] == (cluster_color(1), cluster_color(0))
    assert found[15] == (cluster_color(1), cluster_color(2))


def test_map_of_an_odd_number_of_rows_ends_in_an_upper_half():
    labels = torch.ones(17, 16, dtype=torch.long).tolist()
    text = block_map(labels)
    assert len(text.plain.split("\n")) == 9
    assert colors(text, 8)[0] == (cluster_color(1),)


@pytest.mark.parametrize(
    ("size", "cells"),
    [((8, 8), (16, 16)), ((4, 6), (8, 12)), ((64, 64), (24, 24)), ((200, 20), (24, 2)), ((1, 1), (16, 16))],
)
def test_map_is_neither_tiny_nor_huge(size, cells):
    lines = block_map(torch.ones(size, dtype=torch.long).tolist()).plain.split("\n")
    assert len(lines) == -(-cells[0] // 2)
    assert {len(line) for line in lines} == {cells[1]}


def rendered(what):
    console = Console(force_terminal=True, color_system="truecolor", width=80)
    with console.capture() as captured:
        console.print(what)
    return captured.get()


def test_table_marks_regions_in_their_colors_and_bad_ones_red(terminal):
    table = Table(["region", "sites"], [["cluster_1", 9], ["cluster_2", 12]])
    said = rendered(colored_table(table, {"cluster_1": 1, "cluster_2": 2}, ["cluster_2"]))
    red = next(line for line in said.splitlines() if "cluster_2" in line)
    fine = next(line for line in said.splitlines() if "cluster_1" in line)
    assert "\x1b[31m" in red
    assert "\x1b[31m" not in fine
    assert "\x1b[38;2;0;114;178m■" in fine  # cluster_color(1)


def test_cells_are_text_and_never_markup():
    assert "[red]x[/red]" in rendered(colored_table(Table(["name"], [["[red]x[/red]"]])))
    assert "[red]x[/red]" in rendered(with_finding("[red]x[/red]", bad=False))
