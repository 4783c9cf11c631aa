# SPDX-License-Identifier: Apache-2.0
"""Tables of users' own text as Markdown in which that text has no effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def as_markdown(text: str) -> str:
    """Write text so that Markdown shows it as it is: neither Markdown nor HTML in it has an effect.

    Every ASCII character but letters, digits and spaces becomes its HTML entity, which both leave alone; what cannot be
    printed, such as marks that turn the direction of writing, becomes the replacement character.

    Example:
        >>> as_markdown("<b>*a cat*")
        '&#60;b&#62;&#42;a cat&#42;'
    """
    line = " ".join(text.split())
    shown = (c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return "".join(f"&#{ord(c)};" if c.isascii() and not c.isalnum() and c != " " else c for c in shown)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Write a table in Markdown.

    Args:
        columns: their names.
        rows: strings and numbers.

    Example:
        >>> print(markdown_table(["prompt", "share"], [["a | b", 0.25]]))
        | prompt | share |
        | --- | --- |
        | a &#124; b | 0&#46;25 |
    """
    head, *body = [[as_markdown(_text(cell)) for cell in line] for line in [columns, *rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(columns), *body])


def without_pictures(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Leave out the columns whose cells are arrays.

    Example:
        >>> without_pictures(["prompt", "samples"], [["a cat", np.zeros((8, 8, 3))]])
        (['prompt'], [['a cat']])
    """
    kept = [i for i in range(len(columns)) if not any(isinstance(row[i], np.ndarray) for row in rows)]
    return [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _text(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
