# SPDX-License-Identifier: Apache-2.0
import re

import pytest
import torch
from rich.console import Console

from genmonitor.cli.terminal import block_map, rich_table, with_finding, with_map
from genmonitor.evaluation.results import Table
from genmonitor.plotting.style import cluster_color


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


def test_table_marks_regions_in_their_colors_and_bad_ones_red():
    table = Table(["region", "sites"], [["cluster_1", 9], ["cluster_2", 12]])
    said = rendered(rich_table(table, {"cluster_1": 1, "cluster_2": 2}, ["cluster_2"]))
    red = next(line for line in said.splitlines() if "cluster_2" in line)
    fine = next(line for line in said.splitlines() if "cluster_1" in line)
    assert "\x1b[31m" in red
    assert "\x1b[31m" not in fine
    assert "\x1b[38;2;0;114;178m■" in fine  # cluster_color(1)


def test_cells_are_text_and_never_markup():
    assert "[red]x[/red]" in rendered(rich_table(Table(["name"], [["[red]x[/red]"]])))
    assert "[red]x[/red]" in rendered(with_finding("[red]x[/red]", bad=False))


def test_map_stands_left_of_the_table():
    table = rich_table(Table(["region"], [["image"]]))
    assert re.match(r"▀{16} +region", re.sub(r"\x1b\[[\d;]*m", "", rendered(with_map([[1, 2], [1, 2]], table))))
