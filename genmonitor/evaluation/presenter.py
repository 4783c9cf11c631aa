# SPDX-License-Identifier: Apache-2.0
"""Presenter: shows what an evaluator measured and found, in words, tables and pictures; holds no state of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic

from matplotlib.figure import Figure

from genmonitor._html import text_html
from genmonitor.evaluation.findings import Finding
from genmonitor.evaluation.results import EvaluationT, History, Record, Samples, ShownImages, Table, dated
from genmonitor.plotting.style import Drawing


class Presenter(Generic[EvaluationT]):
    """Shows findings in words; a subclass adds tables and pictures. Rank zero alone calls it.

    Figures are matplotlib figures or functions that draw them. A `functools.partial` of a function of this package,
    with values that pickle takes, is drawn in a worker process; tensors arrive there as NumPy arrays.
    """

    title: ClassVar[str] = ""
    """Heading of its section in the report; the monitor's name by default."""
    figures_to_keep: ClassVar[tuple[str, ...]] = ()
    """Figures of which each evaluation's is kept, not only the latest."""

    def message(self, findings: Sequence[Finding], record: Record) -> str:
        """Return one line about an evaluation, the finding first."""
        return dated(str(findings[0]), record) if findings else ""

    def summary(self, findings: Sequence[Finding], history: History) -> str:
        """Return what the run found, for the terminal."""
        return "\n".join(map(str, findings))

    def summary_html(self, findings: Sequence[Finding], history: History) -> str:
        """Return the same for a notebook."""
        return text_html(self.summary(findings, history))

    def fit_figures(self) -> Mapping[str, Figure | Drawing]:
        """Return figures of what `fit` found."""
        return {}

    def figures(self, evaluation: EvaluationT, history: History, samples: Samples) -> Mapping[str, Figure | Drawing]:
        """Return figures of an evaluation and of the curves up to it."""
        return {}

    def tables(self, evaluation: EvaluationT) -> Mapping[str, Table]:
        """Return the tables of an evaluation."""
        return {}

    def shown_real(self) -> ShownImages | None:
        """Return some of the real images that generated ones are compared with; None for a report without them."""
        return None

    def shown_samples(self, samples: Samples) -> ShownImages | None:
        """Return some generated images, to be shown one by one; None for a report without them."""
        return None
