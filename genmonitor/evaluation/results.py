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
from genmonitor.evaluation.findings import Finding

Record = dict[str, float]
"""The values of one evaluation, with `epoch` and `step`."""
MOMENT = ("epoch", "step")
"""Keys of a record that say when it is of; all others are values."""
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
        values: by key, without prefix.
        notes: sentences that the user should read.
        findings: the one to look at first is the first.
    """

    values: dict[str, float]
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    findings: tuple[Finding, ...] = field(default=(), kw_only=True)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={short(value)}" for name, value in self.values.items())
        return f"{type(self).__name__}({values})"

    def _repr_html_(self) -> str:
        """Return findings, values and notes for a notebook."""
        found = "".join(text_html(str(finding)) for finding in self.findings[:1])
        return (
            found + values_html(self.values) + "".join(text_html(f"Note: {as_sentence(note)}") for note in self.notes)
        )


EvaluationT = TypeVar("EvaluationT", bound=Evaluation)


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
    """A table; cells are strings, numbers, or pictures as RGB uint8 arrays (H, W, 3).

    Attributes:
        columns: headings.
        rows: of cells.
        optional: headings of columns that a narrow screen goes without, the least important first.
        notes: what columns mean, by heading.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    optional: Sequence[str] = ()
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def legend(self) -> str:
        """What its columns mean, in one line."""
        return "; ".join(f"{column}: {self.notes[column]}" for column in self.columns if column in self.notes)


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


def curve(history: History, name: str) -> list[float]:
    """Return a value over the evaluations, NaN where one lacks it, such as a metric that was added later."""
    return [record.get(name, math.nan) for record in history]


def dated(text: str, record: Record) -> str:
    """Return what is said of an evaluation, with its epoch in brackets where it has one."""
    return f"{text.removesuffix('.')}{when(record)}"


def when(record: Record) -> str:
    """Return the epoch of a record in brackets, nothing where it has none."""
    return f" (epoch {record['epoch']:g})" if "epoch" in record else ""
