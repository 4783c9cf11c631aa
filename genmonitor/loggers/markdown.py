# SPDX-License-Identifier: Apache-2.0
"""Tables of users' own text as Markdown in which that text has no effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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


def _text(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
