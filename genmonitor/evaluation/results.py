# SPDX-License-Identifier: Apache-2.0
"""What goes between an evaluator and those who show its findings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from numpy.typing import NDArray
from torch import Tensor

from genmonitor._formatting import as_sentence, short
from genmonitor._html import text_html, values_html

_T = TypeVar("_T")
Record = dict[str, float]
"""The values of one evaluation, with `epoch` and `step`."""
History = list[Record]
"""The records of a run, the oldest first."""


@dataclass(frozen=True, eq=False)
class Samples:
    """This process's part of the generated images.

    Attributes:
        images: [n, C, H, W].
        indices: which of the global set they are, int64 [n].
    """

    images: Tensor
    indices: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What one evaluation found; an evaluator may add to it what its figures show.

    Attributes:
        values: by name, without prefix.
        notes: sentences that the user should read.
    """

    values: dict[str, float]
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={short(value)}" for name, value in self.values.items())
        return f"{type(self).__name__}({values})"

    def _repr_html_(self) -> str:
        """Return the values and notes for a notebook."""
        return values_html(self.values) + "".join(text_html(f"Note: {as_sentence(note)}") for note in self.notes)


@dataclass(frozen=True)
class FitReport:
    """What `fit` has to say.

    Attributes:
        notes: sentences that the user should read.
        comparable: whether values are comparable with those of before; if not, the history starts anew.
        messages: what was found, nothing to worry about.
    """

    notes: tuple[str, ...] = ()
    comparable: bool = True
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alert:
    """A finding that somebody should look at: a line for the title, and a text that says what was found."""

    title: str
    text: str


@dataclass(frozen=True)
class Table:
    """A table; cells are strings, numbers, or pictures as RGB uint8 arrays (H, W, 3)."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, eq=False)
class ShownImages:
    """Some images for people to look at, each one by itself.

    Attributes:
        tiles: RGB in [0, 1], [n, H, W, 3].
        captions: of each, such as its prompt; empty where there is nothing to say.
        nearest: the real image most similar to each, as `tiles`; None where none was looked for.
        distances: how far that is, as a multiple of what is usual between real images.
    """

    tiles: NDArray[Any]
    captions: Sequence[str] = ()
    nearest: NDArray[Any] | None = None
    distances: Sequence[float] = ()


@dataclass(frozen=True)
class ValueInfo:
    """What a logger is told of a value before its first number.

    Attributes:
        about: what it says, in Markdown; empty where nothing is said.
        higher_is_better: None where neither high nor low is better.
        detail: whether it is worth no chart of its own, being constant over a run or read best in the report.
    """

    about: str = ""
    higher_is_better: bool | None = None
    detail: bool = False


def of_value(name: str, by_name: Mapping[str, _T]) -> _T | None:
    """Return what is said of a value, by its own name or as one of a family, whose name ends in …; else None.

    Example:
        >>> of_value("share_2", {"share_…": "all sum to 1", "mmd": "lower is better"})
        'all sum to 1'
    """
    families = (said for family, said in by_name.items() if family.endswith("…") and name.startswith(family[:-1]))
    return by_name[name] if name in by_name else next(families, None)


def curve(history: History, name: str) -> list[float]:
    """Return a value over the evaluations, NaN where one lacks it, such as a metric that was added later."""
    return [record.get(name, math.nan) for record in history]


def when(record: Record) -> str:
    """Return the epoch of a record in brackets, nothing where it has none."""
    return f" (epoch {record['epoch']:g})" if "epoch" in record else ""
