# SPDX-License-Identifier: Apache-2.0
"""Tables: their content, as lines of text that fit the terminal, and the summary of a run."""

from __future__ import annotations

import csv
import io
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from textwrap import wrap
from typing import Any

import numpy as np

from genmonitor._io import clean

WIDTH = 100
"""Largest number of characters of a line without a terminal."""
NARROW = 21
"""Number of characters beyond which a cell may wrap, the length of "difference (p = 0.26)"."""
GAP = "  "
FORMATS = ("csv", "markdown", "latex")
SIGNS = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "≤": r"$\leq$"}
LATEX = str.maketrans({x: f"\\{x}" for x in "&%$#_{}"} | SIGNS)
"""Characters with a meaning in LaTeX, or missing in its fonts, and how to write them."""


@dataclass(frozen=True)
class Table:
    """A table whose cells are strings, numbers, or pictures as RGB uint8 arrays (H, W, 3).

    Attributes:
        columns: Headings.
        rows: Rows of cells.
        optional: Headings of columns to leave out on a narrow screen, the least important first.
        notes: Meanings of columns, by heading.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    optional: Sequence[str] = ()
    notes: Mapping[str, str] = field(default_factory=dict)

    def without_pictures(self) -> Table:
        """Return the table without columns of pictures."""
        drawn = [name for i, name in enumerate(self.columns) if any(isinstance(x[i], np.ndarray) for x in self.rows)]
        return self.without(drawn)

    def cleaned(self) -> Table:
        """Return the table with text that UTF-8 can hold, see `clean`."""
        rows = [[clean(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows]
        return replace(self, columns=list(map(clean, self.columns)), rows=rows)

    def without(self, headings: Collection[str]) -> Table:
        """Return the table without the columns with these headings."""
        kept = [i for i, column in enumerate(self.columns) if column not in headings]
        columns, rows = [self.columns[i] for i in kept], [[row[i] for i in kept] for row in self.rows]
        return replace(self, columns=columns, rows=rows)

    @property
    def legend(self) -> str:
        """Meanings of the columns, in one line."""
        return "; ".join(f"{column}: {self.notes[column]}" for column in self.columns if column in self.notes)


def terminal_width() -> int:
    """Return the width of the terminal, or that of lines in a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH


def within(table: Table, width: int) -> Table:
    """Return a table without the columns that do not fit a width, dropping the least important first.

    Example:
        >>> table = Table(["region", "sites", "where"], [["cluster_1", 9, "left half"]], optional=["sites"])
        >>> within(table, 24).columns, within(table, 80).columns
        (['region', 'where'], ['region', 'sites', 'where'])
    """
    for name in table.optional:
        if sum(map(_least, _columns(table))) + len(GAP) * (len(table.columns) - 1) <= width:
            break
        table = table.without([name])
    return table


def on_screen(table: Table) -> str:
    """Return a table as wide as the terminal, with the meaning of its columns below."""
    width = terminal_width()
    fitting = within(table, width)
    return "\n".join([aligned(fitting, width), *wrap(fitting.legend, width)])


def formatted(table: Table, form: str) -> str:
    r"""Return a table for another program: as "csv", "markdown" or "latex", which needs no package.

    Example:
        >>> print(formatted(Table(["region", "share"], [["cluster_1", "13 %"]]), "latex"))
        \begin{tabular}{ll}
        region & share \\ \hline
        cluster\_1 & 13 \% \\
        \end{tabular}
    """
    lines, out, count = list(zip(*_columns(table), strict=True)), io.StringIO(), len(table.columns)
    if form == "csv":
        csv.writer(out, lineterminator="\n").writerows(lines)
        return out.getvalue().rstrip("\n")
    if form == "markdown":
        head, *rows = (f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
        return "\n".join([head, f"|{' --- |' * count}", *rows])
    head, *rows = (f"{' & '.join(cell.translate(LATEX) for cell in line)} \\\\" for line in lines)
    return "\n".join([f"\\begin{{tabular}}{{{'l' * count}}}", f"{head} \\hline", *rows, "\\end{tabular}"])


def aligned(table: Table, width: int | None = None) -> str:
    """Return a table of text and numbers as lines with aligned columns, numbers to the right.

    Args:
        table: Table whose cells are text or numbers.
        width: Width of the lines, to which cells are wrapped; None for one line per row.

    Example:
        >>> print(aligned(Table(["region", "sites"], [["image", 64], ["cluster_1", 9]])))
        region     sites
        image         64
        cluster_1      9
    """
    columns = _columns(table)
    widths = [max(map(len, column)) for column in columns]
    spare = 0 if width is None else width - sum(widths) - len(GAP) * (len(widths) - 1)
    for i in sorted(range(len(widths)), key=lambda i: -widths[i]):  # the widest column is narrowed first
        least = _least(columns[i])
        if spare < 0 and least < widths[i]:
            spare, widths[i] = min(0, spare + widths[i] - least), max(least, widths[i] + spare)
    justified = [str.rjust if all(map(_is_number, column[1:])) else str.ljust for column in columns]
    lines = []
    for row in zip(*columns, strict=True):
        cells = [wrap(cell, of, break_long_words=False) or [""] for cell, of in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = (just(part, of) for part, of, just in zip(parts, widths, justified, strict=True))
            lines.append(GAP.join(padded).rstrip())
    return "\n".join(lines)


def _columns(table: Table) -> list[Sequence[str]]:
    """Return the cells of each column as text, with the heading first."""
    return list(zip(*[[str(cell) for cell in row] for row in (table.columns, *table.rows)], strict=True))


def _least(column: Sequence[str]) -> int:
    """Return the minimum width of a column."""
    longest = max(len(word) for cell in column for word in cell.split() or [""])
    return max(longest, min(NARROW, max(map(len, column))))


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"([<−-]? ?[\d.,]+(e[+-]?\d+)?( [×%])?|–)?", cell) is not None
