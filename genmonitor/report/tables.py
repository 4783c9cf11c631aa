# SPDX-License-Identifier: Apache-2.0
"""Tables in a run's folder: which part of one is written, and reading them again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from genmonitor.evaluation.evaluator import Table

_MAX_ROWS = 500


def without_pictures(table: Table) -> Table:
    """Leave out the columns in which a cell is a picture.

    Example:
        >>> from genmonitor.evaluation.evaluator import Table
        >>> without_pictures(Table(["prompt", "samples"], [["a cat", np.zeros((8, 8, 3))]]))
        Table(columns=['prompt'], rows=[['a cat']])
    """
    kept = [i for i in range(len(table.columns)) if not any(isinstance(row[i], np.ndarray) for row in table.rows)]
    columns, rows = [table.columns[i] for i in kept], [[row[i] for i in kept] for row in table.rows]
    return replace(table, columns=columns, rows=rows)
