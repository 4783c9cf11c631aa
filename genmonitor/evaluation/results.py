# SPDX-License-Identifier: Apache-2.0
"""Results of an evaluator, and their presenter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from matplotlib.figure import Figure
from numpy.typing import NDArray

from genmonitor._formatting import short
from genmonitor.findings.finding import Finding, headlines
from genmonitor.findings.tables import Table
from genmonitor.images.sampler import Samples
from genmonitor.plotting.style import Drawing

Record = dict[str, float]
"""The values of one evaluation, with `epoch` and `step`."""
MOMENT = ("epoch", "step")
"""Keys of the moment of a record; all others are values."""
History = list[Record]
"""The records of a run, the oldest first."""


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Result of one evaluation; a subclass may add data for figures.

    Attributes:
        values: Values by key, without prefix.
        notes: Notes for the user, in sentences.
        findings: Findings, the main one first.
    """

    values: dict[str, float]
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    findings: tuple[Finding, ...] = field(default=(), kw_only=True)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={short(value)}" for name, value in self.values.items())
        return f"{type(self).__name__}({values})"


EvaluationT = TypeVar("EvaluationT", bound=Evaluation)


@dataclass(frozen=True)
class FitReport:
    """Report of `fit`.

    Attributes:
        notes: Notes for the user, in sentences.
        comparable: True if values are comparable with earlier ones; if not, the history starts over.
        messages: Information that is no warning.
    """

    notes: tuple[str, ...] = ()
    comparable: bool = True
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alert:
    """A finding that deserves attention: a title of one line, and a text."""

    title: str
    text: str


@dataclass(frozen=True, eq=False)
class ShownImages:
    """Images to show one by one.

    Attributes:
        tiles: RGB images [n, H, W, 3] in [0, 1].
        captions: Caption of each image, such as its prompt; may be empty.
        nearest: Most similar real image of each, like `tiles`; None if not searched.
        distances: Distance to it, as a multiple of the usual one between real images.
    """

    tiles: NDArray[Any]
    captions: Sequence[str] = ()
    nearest: NDArray[Any] | None = None
    distances: Sequence[float] = ()


def curve(history: History, name: str) -> list[float]:
    """Return a value over the evaluations, NaN where it is missing, such as for a metric added later."""
    return [record.get(name, math.nan) for record in history]


class Presenter(Generic[EvaluationT]):
    """Shows findings in words; a subclass adds tables and pictures. Only rank zero calls it.

    Figures are matplotlib figures or functions that draw them. Training waits for each, so an evaluation without a
    diagnosis has none; page and loggers draw curves from the values.
    """

    title: ClassVar[str] = ""
    """Heading of its section in the report; the monitor's name by default."""

    def summary(self, findings: Sequence[Finding], history: History) -> str:
        """Return the results of the last evaluation for the terminal: the table, or findings in full without one."""
        return self.table(findings, history) or "\n".join(map(str, headlines(findings)))

    def table(self, findings: Sequence[Finding], history: History) -> str:
        """Return a table of the last evaluation for the terminal; empty for none."""
        return ""

    def fit_figures(self) -> Mapping[str, Figure | Drawing]:
        """Return figures of the result of `fit`."""
        return {}

    def figures(self, evaluation: EvaluationT, history: History, samples: Samples) -> Mapping[str, Figure | Drawing]:
        """Return figures of an evaluation and of the curves up to it."""
        return {}

    def tables(self, evaluation: EvaluationT) -> Mapping[str, Table]:
        """Return the tables of an evaluation."""
        return {}

    def samples_table(self, evaluation: EvaluationT, samples: Samples) -> Table | None:
        """Return single samples with what was read of each; None where nothing was."""
        return None

    def shown_real(self) -> ShownImages | None:
        """Return some of the real images to compare with; None for a report without them."""
        return None

    def shown_samples(self, samples: Samples) -> ShownImages | None:
        """Return some generated images to show one by one; None for a report without them."""
        return None

    def shown_diagnosis(self, evaluation: EvaluationT) -> ShownImages | None:
        """Return examples of faults, captioned by their row; None for a report without them."""
        return None
