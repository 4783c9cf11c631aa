# SPDX-License-Identifier: Apache-2.0
"""The diagnosis of an evaluation: made by rank zero for all processes, and dated by the evaluations before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from genmonitor.distributed import Collective
from genmonitor.evaluation.classes import ClassResult
from genmonitor.evaluation.diagnosis import Diagnosis
from genmonitor.evaluation.regions.tracker import Look
from genmonitor.evaluation.results import Evaluation
from genmonitor.evaluation.single_samples import COPIED
from genmonitor.evaluation.tracker import IN_A_ROW
from genmonitor.findings.finding import Finding
from genmonitor.functional.hypothesis_tests.mmd_influence import MMDInfluence

CHANGED = 1.25
"""Times as large or as small as at the last diagnosis: from such an error ratio of a region on, there is another."""
SAME = 0.3
"""Part of the area of two findings that they share at least, if they are about one place."""


@dataclass(frozen=True, eq=False)
class Diagnosed:
    """What a diagnosis found.

    Attributes:
        findings: What is wrong, what explains most of the image's distance first; empty where nothing is.
        values: Numbers about the image, by key; None where nothing was diagnosed.
        notes: What could not be tried.
        diagnosis: All of it, on rank zero; None elsewhere, and where it failed.
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
        influence: Influence of the samples of all processes; None where there are too few to compare.
        diagnosed: Where and what is wrong; nothing where there are too few to compare.
        classes: What was found of each class; empty without labels, and where nothing was diagnosed.
        between: True if it is between two diagnoses.
        look: How its samples look beside those of the best evaluation; None where samples are an encoder's, or too few.
    """

    influence: MMDInfluence | None
    diagnosed: Diagnosed = field(default=Diagnosed())
    classes: tuple[ClassResult, ...] = ()
    between: bool = False
    look: Look | None = None

    @property
    def copies(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a sample and the real image that it copies, where it was diagnosed on this process."""
        return () if self.diagnosed.diagnosis is None else self.diagnosed.diagnosis.copies


def diagnose_for_all(make: Callable[[], Diagnosis], comm: Collective) -> Diagnosed:
    """Diagnose on rank zero and tell all processes; a failure costs the diagnosis, not the evaluation.

    Args:
        make: Returns the diagnosis; called on rank zero alone.
        comm: The processes that evaluate together.
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


@dataclass
class Diagnoses:
    """What the diagnoses of a run found, and when the next one is due.

    Attributes:
        every: Evaluations from one diagnosis to the next.
        is_last: True if the next evaluation is the last of a fit, which always has a diagnosis.
        evaluations: Their number.
        epoch: Epoch of the last diagnosis.
        ratios: Error ratios of image and regions at the last diagnosis.
        wrong: What was wrong then, dated.
        copied: Diagnoses in a row that found copies.
    """

    every: int
    is_last: bool = False
    evaluations: int = 0
    epoch: float = math.nan
    ratios: dict[str, float] = field(default_factory=dict)
    wrong: tuple[Finding, ...] = ()
    copied: int = 0

    def due(self, ratios: Mapping[str, float]) -> bool:
        """Return whether a diagnosis is due: by its turn, at the end, or since a region changed much after the last."""
        changes = (_above_chance(ratio) / self.ratios.get(name, _above_chance(ratio)) for name, ratio in ratios.items())
        much = any(not 1 / CHANGED < change < CHANGED for change in changes)
        return self.is_last or self.evaluations % self.every == 0 or much

    def commit(self, evaluation: RegionEvaluation, ratios: Mapping[str, float], epoch: float) -> list[Finding]:
        """Keep what is wrong; return findings of copies where they are found at two diagnoses in a row."""
        self.evaluations += 1
        if not evaluation.between:  # also where the diagnosis failed, which is not tried again before its turn
            self.ratios = {name: _above_chance(ratio) for name, ratio in ratios.items()}
        if evaluation.diagnosed.values is None:
            return []
        self.wrong, self.epoch = dated(evaluation.diagnosed.findings, self.wrong, epoch), epoch
        copies = [x for x in self.wrong if x.measure == COPIED]
        self.copied = self.copied + 1 if copies else 0
        return copies if self.copied == IN_A_ROW else []

    def findings(self, evaluation: RegionEvaluation, epoch: float | None) -> tuple[Finding, ...]:
        """Return what is wrong at an evaluation, by the last diagnosis there was."""
        if evaluation.diagnosed.values is not None:
            return dated(evaluation.diagnosed.findings, self.wrong, epoch)
        said = f" Diagnosed at epoch {self.epoch:g}."
        return tuple(replace(x, text=x.text + said, as_of=self.epoch) for x in self.wrong)

    def state_dict(self) -> dict[str, Any]:
        """Return plain Python only."""
        state = {name: getattr(self, name) for name in ("evaluations", "epoch", "copied")}
        return state | {"ratios": dict(self.ratios), "wrong": [finding.to_dict() for finding in self.wrong]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self.evaluations, self.epoch, self.copied = state["evaluations"], state["epoch"], state["copied"]
        self.ratios, self.wrong = dict(state["ratios"]), tuple(map(Finding.from_dict, state["wrong"]))


def _above_chance(ratio: float) -> float:
    """Return an error ratio, where those below 1 are chance and count as 1."""
    return max(ratio, 1.0)


def dated(findings: Sequence[Finding], before: Sequence[Finding], epoch: float | None) -> tuple[Finding, ...]:
    """Return findings with the epoch since when they have held, and say it where that is an earlier one.

    Args:
        findings: Findings of an evaluation.
        before: Those of the evaluation before it, dated.
        epoch: Epoch of the evaluation; None where epochs are not known.
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
