# SPDX-License-Identifier: Apache-2.0
"""Result of an evaluation of regions, and of its diagnosis, which rank zero makes for all processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from genmonitor.distributed import Collective
from genmonitor.evaluation.classes import ClassResult
from genmonitor.evaluation.diagnosis import Diagnosis
from genmonitor.evaluation.regions.tracker import Look
from genmonitor.evaluation.results import Evaluation
from genmonitor.findings.finding import Finding
from genmonitor.functional.relative_similarity import MMDInfluence


@dataclass(frozen=True, eq=False)
class Diagnosed:
    """Result of a diagnosis.

    Attributes:
        findings: Findings, the one that explains most of the image's distance first; may be empty.
        values: Numbers about the image, by key; None without a diagnosis.
        notes: Notes on what could not be tried.
        diagnosis: Complete diagnosis on rank zero; None on other processes or after a failure.
    """

    findings: tuple[Finding, ...] = ()
    values: dict[str, float] | None = None
    notes: tuple[str, ...] = ()
    diagnosis: Diagnosis | None = None

    def without_claims(self) -> Diagnosed:
        """Return the result without claims of faults, if the p-value of all tests together does not support them."""
        diagnosis = None if self.diagnosis is None else self.diagnosis.without_claims()
        return replace(self, findings=tuple(x for x in self.findings if x.fine is not False), diagnosis=diagnosis)


@dataclass(frozen=True, eq=False, repr=False)
class RegionEvaluation(Evaluation):
    """Evaluation of regions, with data for the comparison with later ones.

    Attributes:
        influence: Influence of the samples of all processes; None if there are too few to compare.
        diagnosed: Result of the diagnosis; empty if there are too few samples to compare.
        classes: Result of each class; empty without labels or diagnosis.
        between: True for an evaluation without a diagnosis, between two with one.
        look: Comparison of its readings with those of the best evaluation; None for samples of an encoder, or too few.
    """

    influence: MMDInfluence | None
    diagnosed: Diagnosed = field(default=Diagnosed())
    classes: tuple[ClassResult, ...] = ()
    between: bool = False
    look: Look | None = None

    @property
    def copies(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a sample and the real image that it copies, if diagnosed on this process."""
        return () if self.diagnosed.diagnosis is None else self.diagnosed.diagnosis.copies


def diagnose_for_all(make: Callable[[], Diagnosis], comm: Collective) -> Diagnosed:
    """Diagnose on rank zero and share the result; a failure costs the diagnosis, not the evaluation.

    Args:
        make: Function that returns the diagnosis, called only on rank zero.
        comm: Processes that evaluate together.
    """
    made: Diagnosis | None = None

    def summary() -> Diagnosed:
        nonlocal made
        try:
            made = make()
        except Exception as error:
            return Diagnosed(notes=(f"the diagnosis failed: {type(error).__name__}: {error}",))
        return Diagnosed(tuple(x for x in made.findings if not x.fine), made.of_image(), made.failures)

    return replace(comm.from_rank_zero(summary), diagnosis=made)
