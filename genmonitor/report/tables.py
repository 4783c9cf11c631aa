# SPDX-License-Identifier: Apache-2.0
"""Tables in a run's folder: the part that is written, and reading it again."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from genmonitor.evaluation.results import Table
from genmonitor.report.files import BY_EPOCH

_MAX_ROWS = 500


@dataclass(frozen=True)
class NamedTable:
    """A table of text and numbers; a cell that names a PNG file of the folder is a picture."""

    name: str
    columns: list[Any]
    rows: list[list[Any]]


def without_pictures(table: Table) -> Table:
    """Leave out the columns in which a cell is a picture.

    Example:
        >>> without_pictures(Table(["prompt", "samples"], [["a cat", np.zeros((8, 8, 3))]])).rows
        [['a cat']]
    """
    kept = [i for i in range(len(table.columns)) if not any(isinstance(row[i], np.ndarray) for row in table.rows)]
    columns, rows = [table.columns[i] for i in kept], [[row[i] for i in kept] for row in table.rows]
    return replace(table, columns=columns, rows=rows)


def read_tables(files: Iterable[Path]) -> list[NamedTable]:
    """Read tables from JSON and CSV files; where there is one for each evaluation, the last.

    A JSON file may hold a list of values, a list of dictionaries, or {"columns": …, "data": …}; a CSV file has a
    heading. Whatever else is in a file, it is no table.
    """
    named = _latest([path for path in files if path.suffix in (".json", ".csv")])
    tables = [_from_csv(name, path) if path.suffix == ".csv" else _from_json(name, path) for name, path in named]
    return [table for table in tables if table is not None]


def _latest(files: Iterable[Path]) -> list[tuple[str, Path]]:
    """Name files, and keep the last where there is one for each evaluation."""
    latest: dict[str, tuple[int, str, Path]] = {}
    for path in files:
        match = BY_EPOCH.fullmatch(path.stem)
        kind, step, when = (match[1], int(match[3]), f", epoch {int(match[2])}") if match else (path.stem, 0, "")
        if kind not in latest or step >= latest[kind][0]:
            latest[kind] = (step, kind.replace("_", " ") + when, path)
    return [(name, path) for _, name, path in latest.values()]


def _from_csv(name: str, path: Path) -> NamedTable | None:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            head, *rows = [list(row) for row, _ in zip(csv.reader(file), range(_MAX_ROWS + 1), strict=False)]
    except (OSError, ValueError, csv.Error):  # also if there is no row at all
        return None
    return NamedTable(name, head, rows)


def _from_json(name: str, path: Path) -> NamedTable | None:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(content, dict):
        columns, rows = content.get("columns"), content.get("data", content.get("rows"))
        if isinstance(columns, list) and isinstance(rows, list) and all(isinstance(row, list) for row in rows):
            return NamedTable(name, columns, rows[:_MAX_ROWS])
        return None
    if not isinstance(content, list) or not content:
        return None
    content = content[:_MAX_ROWS]
    if all(isinstance(row, dict) for row in content):
        columns = list(dict.fromkeys(key for row in content for key in row))
        return NamedTable(name, columns, [[row.get(column) for column in columns] for row in content])
    return NamedTable(name, ["", name.removesuffix("s")], [[number, value] for number, value in enumerate(content)])
