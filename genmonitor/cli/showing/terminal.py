# SPDX-License-Identifier: Apache-2.0
"""What a terminal shows in color: the map of the regions, and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from genmonitor._places import coarse_labels
from genmonitor.evaluation.results import Table
from genmonitor.plotting.style import cluster_color

LEAST, MOST = 16, 24
"""Cells of the map's longer side, about: two of them share a character, one above the other."""
NUMBERS = frozenset({"sites", "CMS", "error", "share", "p", "difference of MMD²", "stability", "logged", "replayed"})


def block_map(labels: Sequence[Sequence[int]]) -> Text:
    """Draw labels as colored half blocks, each region in the color that it has in every figure.

    Args:
        labels: whole numbers [h, w], 0 for what never varies.
    """
    sites = torch.tensor(labels)
    longest = max(sites.shape)
    scale = min(1.0, MOST / longest) if longest > LEAST else LEAST // longest
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
    """Return a region's name behind a mark of its color."""
    return Text.assemble(("■ ", cluster_color(label)), name)


def rich_table(table: Table, labels: Mapping[str, int] | None = None, differing: Sequence[str] = ()) -> RichTable:
    """Return a table for a terminal; the rows of the regions named in `differing` are red.

    Args:
        table: of text and numbers, whose first column names what the row is of.
        labels: of the regions among the rows.
        differing: names of rows.
    """
    out = RichTable(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in table.columns:
        out.add_column(column, justify="right" if column in NUMBERS else "left", overflow="fold")
    for name, *cells in table.rows:
        first = region_name(name, labels[name]) if labels and name in labels else Text(str(name))
        out.add_row(first, *(Text(str(cell)) for cell in cells), style="red" if name in differing else "")
    return out


def beside_map(labels: Sequence[Sequence[int]], table: RichTable) -> RichTable:
    """Put the map of the regions to the left of their table."""
    out = RichTable.grid(padding=(0, 3))
    out.add_row(block_map(labels), table)
    return out


def headed(finding: str, bad: bool, *rest: RenderableType) -> Group:
    """Put a finding above everything else, red where something is wrong and green where nothing is."""
    return Group(Text(finding, style="bold red" if bad else "bold green"), *rest)
