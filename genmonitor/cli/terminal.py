# SPDX-License-Identifier: Apache-2.0
"""Colored output for a terminal: the map of the regions, tables, and the finding above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from genmonitor._places import coarse_labels
from genmonitor.evaluation.results import Table
from genmonitor.plotting.style import cluster_color

MIN_CELLS, MAX_CELLS = 16, 24
"""Of the map's longer side, about: two cells share a character, one above the other."""
NUMERIC = frozenset({"sites", "CMS", "error", "share", "p", "difference of MMD²", "stability", "logged", "replayed"})


def block_map(labels: Sequence[Sequence[int]]) -> Text:
    """Draw the map of the regions as half blocks, in the colors of the figures.

    Args:
        labels: whole numbers [h, w], 0 for sites that never vary.
    """
    sites = torch.tensor(labels)
    longest = max(sites.shape)
    scale = min(1.0, MAX_CELLS / longest) if longest > MIN_CELLS else MIN_CELLS // longest
    rows, columns = (max(1, round(side * scale)) for side in sites.shape)
    cells = coarse_labels(sites, rows, columns)
    out = Text()
    for upper, lower in zip(cells[::2], [*cells[1::2], None], strict=False):
        for column, label in enumerate(upper):
            under = "" if lower is None else f" on {cluster_color(lower[column])}"
            out.append("▀", style=f"{cluster_color(label)}{under}")
        out.append("\n")
    out.rstrip()
    return out


def region_name(name: str, label: int) -> Text:
    """Return a region's name with a square of its color before it."""
    return Text.assemble(("■ ", cluster_color(label)), name)


def rich_table(table: Table, labels: Mapping[str, int] | None = None, differing: Sequence[str] = ()) -> RichTable:
    """Return a table for a terminal.

    Args:
        table: text and numbers; the first column names the rows.
        labels: of the regions, by the names of their rows.
        differing: names of the rows to print in red.
    """
    out = RichTable(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in table.columns:
        out.add_column(column, justify="right" if column in NUMERIC else "left", overflow="fold")
    for name, *cells in table.rows:
        first = region_name(name, labels[name]) if labels and name in labels else Text(str(name))
        out.add_row(first, *(Text(str(cell)) for cell in cells), style="red" if name in differing else "")
    return out


def with_map(labels: Sequence[Sequence[int]], table: RichTable) -> RichTable:
    """Put the map of the regions to the left of a table."""
    out = RichTable.grid(padding=(0, 3))
    out.add_row(block_map(labels), table)
    return out


def with_finding(finding: str, bad: bool, *rest: RenderableType) -> Group:
    """Put the finding above everything else, red if something is wrong, else green."""
    return Group(Text(finding, style="bold red" if bad else "bold green"), *rest)
