# SPDX-License-Identifier: Apache-2.0
"""The diagnosis of an evaluation: made by rank zero for all processes, and dated by the evaluations before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from genmonitor.distributed import Collective
from genmonitor.evaluation.classes import ClassResult
from genmonitor.evaluation.diagnosis import Diagnosis
from genmonitor.evaluation.findings import Finding
from genmonitor.evaluation.regions.changes import Change
from genmonitor.evaluation.results import Evaluation
from genmonitor.functional.mmd_influence import MMDInfluence

SAME = 0.3
"""Part of the area of two findings that they share at least, if they are about one place."""


@dataclass(frozen=True, eq=False)
class Diagnosed:
    """What a diagnosis found.

    Attributes:
        findings: what is wrong, what explains most of the image's distance first; empty where nothing is.
        values: numbers about the image, by key; None where nothing was diagnosed.
        notes: what could not be tried.
        diagnosis: all of it, on rank zero; None elsewhere, and where it failed.
    """

    findings: tuple[Finding, ...] = ()
    values: dict[str, float] | None = None
    notes: tuple[str, ...] = ()
    diagnosis: Diagnosis | None = None

    def without_claims(self) -> Diagnosed:
        """Return it without what it calls wrong, where the p-value of all tests together allows none."""
        diagnosis = None if self.diagnosis is None else self.diagnosis.without_claims()
        return replace(self, findings=tuple(x for x in self.findings if x.fine is not False), diagnosis=diagnosis)


@dataclass(frozen=True, eq=False, repr=False)
class RegionEvaluation(Evaluation):
    """Values, and what a later evaluation is compared by.

    Attributes:
        influence: of the samples of all processes; None where there are too few to compare.
        diagnosed: where and what is wrong; nothing where there are too few to compare.
        classes: what was found of each class; empty without labels, and where nothing was diagnosed.
        between: whether it is between two diagnoses.
        change: what is worse than at the best evaluation; None where samples are an encoder's, or too few.
    """

    influence: MMDInfluence | None
    diagnosed: Diagnosed = field(default=Diagnosed())
    classes: tuple[ClassResult, ...] = ()
    between: bool = False
    change: Change | None = None

    @property
    def copies(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a sample and the real image that it copies, where it was diagnosed on this process."""
        return () if self.diagnosed.diagnosis is None else self.diagnosed.diagnosis.copies


def diagnose_for_all(make: Callable[[], Diagnosis], comm: Collective) -> Diagnosed:
    """Diagnose on rank zero and tell all processes; a failure costs the diagnosis, not the evaluation.

    Args:
        make: returns the diagnosis; called on rank zero alone.
        comm: the processes that evaluate together.
    """
    diagnosis: Diagnosis | None = None

    def told() -> tuple[list[dict[str, object]], dict[str, float] | None, tuple[str, ...]]:
        nonlocal diagnosis
        try:
            diagnosis = make()
        except Exception as error:
            return [], None, (f"the diagnosis failed: {type(error).__name__}: {error}",)
        wrong = [finding.to_dict() for finding in diagnosis.findings if not finding.fine]
        return wrong, diagnosis.of_image(), diagnosis.failures

    findings, values, notes = comm.from_rank_zero(told)
    return Diagnosed(tuple(map(Finding.from_dict, findings)), values, notes, diagnosis)


def dated(findings: Sequence[Finding], before: Sequence[Finding], epoch: float | None) -> tuple[Finding, ...]:
    """Return findings with the epoch since when they have held, and say it where that is an earlier one.

    Args:
        findings: of an evaluation.
        before: those of the evaluation before it, dated.
        epoch: of the evaluation; None where epochs are not known.
    """
    out = []
    for finding in findings:
        lasting = (x.since for x in before if x.since is not None and finding.fine is False and _same(x, finding))
        since = next(lasting, epoch)
        text = finding.text if since is None or since == epoch else f"{finding.text} Since epoch {since:g}."
        out.append(replace(finding, text=text, since=since))
    return tuple(out)


def _same(finding: Finding, other: Finding) -> bool:
    """Return True if two findings are about one kind of fault at one place, or about one thing without a place."""
    kinds = [x.kinds[0].name if x.kinds else x.measure for x in (finding, other)]
    return kinds[0] == kinds[1] and _overlap(finding.area.mask, other.area.mask) >= SAME


def _overlap(mask: Tensor | None, other: Tensor | None) -> float:
    if mask is None or other is None or mask.shape != other.shape:
        return float(mask is other)
    return float((mask & other).sum() / (mask | other).sum().clamp_min(1))
