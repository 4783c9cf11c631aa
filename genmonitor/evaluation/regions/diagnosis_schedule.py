# SPDX-License-Identifier: Apache-2.0
"""Diagnoses of a run: when the next one is due, and since when their findings hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from genmonitor.evaluation.regions.evaluation import RegionEvaluation
from genmonitor.evaluation.single_samples import COPIED
from genmonitor.evaluation.tracker import IN_A_ROW
from genmonitor.findings.finding import Finding, overlap

CHANGED = 2.0
"""Factor of an error ratio since the last diagnosis from which a new diagnosis is due."""


@dataclass
class Diagnoses:
    """Results of the diagnoses of a run, and the rule when the next one is due.

    Attributes:
        evaluations: Number of evaluations.
        until_last: Number of evaluations up to the last diagnosis.
        epoch: Epoch of the last diagnosis.
        ratios: Error ratios of image and regions at the last diagnosis.
        wrong: Findings of the last diagnosis, dated.
        copied: Number of diagnoses in a row that found copies.
    """

    evaluations: int = 0
    until_last: int = 0
    epoch: float = math.nan
    ratios: dict[str, float] = field(default_factory=dict)
    wrong: tuple[Finding, ...] = ()
    copied: int = 0

    def due(self, ratios: Mapping[str, float]) -> bool:
        """Return True if a diagnosis is due: at the first evaluation, and after a large change of a region.

        Copies change no region, so a diagnosis is also due after twice as many evaluations as at the last one.
        """
        changes = (_above_chance(ratio) / self.ratios.get(name, _above_chance(ratio)) for name, ratio in ratios.items())
        much = any(not 1 / CHANGED < change < CHANGED for change in changes)
        return self.evaluations >= 2 * self.until_last or much

    def commit(self, evaluation: RegionEvaluation, ratios: Mapping[str, float], epoch: float) -> list[Finding]:
        """Keep the findings; return findings of copies if two diagnoses in a row found them."""
        self.evaluations += 1
        if not evaluation.between:  # also if the diagnosis failed, which is not tried again before it is due
            self.ratios = {name: _above_chance(ratio) for name, ratio in ratios.items()}
            self.until_last = self.evaluations
        if evaluation.diagnosed.values is None:
            return []
        self.wrong, self.epoch = dated(evaluation.diagnosed.findings, self.wrong, epoch), epoch
        copies = [x for x in self.wrong if x.measure == COPIED]
        self.copied = self.copied + 1 if copies else 0
        return copies if self.copied == IN_A_ROW else []

    def findings(self, evaluation: RegionEvaluation, epoch: float | None) -> tuple[Finding, ...]:
        """Return the faults at an evaluation, by the last diagnosis."""
        if evaluation.diagnosed.values is not None:
            return dated(evaluation.diagnosed.findings, self.wrong, epoch)
        said = f" Diagnosed at epoch {self.epoch:g}."
        return tuple(replace(x, text=x.text + said, as_of=self.epoch) for x in self.wrong)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain Python."""
        state = {name: getattr(self, name) for name in ("evaluations", "until_last", "epoch", "copied")}
        return state | {"ratios": dict(self.ratios), "wrong": [finding.to_dict() for finding in self.wrong]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self.evaluations, self.until_last = state["evaluations"], state["until_last"]
        self.epoch, self.copied = state["epoch"], state["copied"]
        self.ratios, self.wrong = dict(state["ratios"]), tuple(map(Finding.from_dict, state["wrong"]))


def _above_chance(ratio: float) -> float:
    """Return an error ratio of at least 1, since lower ones are chance."""
    return max(ratio, 1.0)


def dated(findings: Sequence[Finding], before: Sequence[Finding], epoch: float | None) -> tuple[Finding, ...]:
    """Return findings with the first epoch since which they hold, named in the text if it is an earlier one.

    Args:
        findings: Findings of an evaluation.
        before: Dated findings of the evaluation before.
        epoch: Epoch of the evaluation; None if unknown.
    """
    out = []
    for finding in findings:
        lasting = (x.since for x in before if x.since is not None and finding.fine is False and _same(x, finding))
        since = next(lasting, epoch)
        text = finding.text if since is None or since == epoch else f"{finding.text} Since epoch {since:g}."
        out.append(replace(finding, text=text, since=since))
    return tuple(out)


def _same(finding: Finding, other: Finding) -> bool:
    """Return True if two findings have the same kind and place, or are the same without a place."""
    kinds = [x.kinds[0].name if x.kinds else x.measure for x in (finding, other)]
    # findings are about the same place if their areas overlap by 30 %
    return kinds[0] == kinds[1] and overlap(finding.area.mask, other.area.mask) >= 0.3
