# SPDX-License-Identifier: Apache-2.0
"""Tables in a run's folder: the part that is written, and reading it again."""

from __future__ import annotations

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
    """A table of text and numbers."""

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
    """Read tables that `RunFolder.write_table` wrote; where there is one for each evaluation, the last."""
    tables = [_read(name, path) for name, path in _latest([path for path in files if path.suffix == ".json"])]
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


def _read(name: str, path: Path) -> NamedTable | None:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, list) or not content or not all(isinstance(row, dict) for row in content):
        return None
    rows = content[:_MAX_ROWS]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return NamedTable(name, columns, [[row.get(column) for column in columns] for row in rows])
