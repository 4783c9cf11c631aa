# SPDX-License-Identifier: Apache-2.0
"""Estimates of each prompt's samples: who is judged alone, who became worse than at its best, and in which words."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import torch
from torch import Tensor

from genmonitor._formatting import capitalized, format_p
from genmonitor.evaluation.findings import Area, DegradationDetector, Finding, p_values_of_change, recovered
from genmonitor.evaluation.results import Record
from genmonitor.evaluation.values import Better, ValueSpec
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.images.prompts import Prompts

ALL = "all samples"
"""Name of all samples, where single prompts have too few or there are no prompts."""
CURVES = 20
"""Prompts whose measure has a curve, the first ones."""
NAMED = 5
"""Further prompts that an alert names."""
RESOLUTION = 1e-6
"""Effect of rounding on a value: no standard error is taken to be smaller."""
SMALLEST_P = 1e-300


@dataclass(frozen=True)
class Estimate:
    """A value of a prompt's samples.

    Attributes:
        value: the estimate.
        error: its standard error.
        samples: the number that the error is estimated from.
    """

    value: float
    error: float
    samples: int


class PromptGroups:
    """Groups of samples that are judged together: those of each prompt with enough, or all if none has enough.

    Args:
        prompts: sample i has prompt i modulo their number; None for a generator without prompts.
        sizes: numbers of samples, on each side of a comparison.

    Attributes:
        by_prompt: whether samples are judged prompt by prompt.
        left_out: number of prompts with too few samples to be judged.
        names: of the groups that are judged.

    Example:
        >>> {name: len(rows) for name, rows in PromptGroups(Prompts([5, 7]), 17).split(torch.zeros(17, 2)).items()}
        {'5': 9, '7': 8}
    """

    def __init__(self, prompts: Prompts | None, *sizes: int) -> None:
        counts = [] if prompts is None else [Counter(prompts.named(range(n))) for n in sizes]
        distinct = [] if prompts is None else prompts.distinct
        enough = [min(count[prompt] for count in counts) >= MIN_SAMPLES for prompt in distinct]
        self._prompts, self._enough = prompts, enough
        self._any = min(sizes) >= MIN_SAMPLES
        self.by_prompt, self.left_out = any(enough), enough.count(False)
        alone = [str(prompt) for prompt, judged in zip(distinct, enough, strict=True) if judged]
        self.names = alone or ([ALL] if self._any else [])

    def split(self, rows: Tensor) -> dict[str, Tensor]:
        """Split rows [N, ...], row i of sample i, by the prompts that are judged; {} if there are too few.

        Args:
            rows: of all samples of a side.
        """
        if self._prompts is None or not self.by_prompt:
            return {ALL: rows} if self._any else {}
        numbers = self._prompts.numbers(torch.arange(len(rows), device=rows.device))
        judged = [(i, prompt) for i, prompt in enumerate(self._prompts.distinct) if self._enough[i]]
        return {str(prompt): rows[numbers == i] for i, prompt in judged}

    def area(self, name: str) -> Area:
        """Return what a finding about a group is about."""
        return Area(f"prompt {quoted(name)}" if self.by_prompt else name)

    def note(self) -> str:
        """Return a note on the prompts that cannot raise alerts; "" if all can."""
        if not self.left_out:
            return ""
        others = "the others" if self.by_prompt else "all together" if self._any else "none"
        return (
            f"{self.left_out} of {len(self._enough)} prompts have fewer than {MIN_SAMPLES} samples, too few for alerts "
            f"about them; alerts are about {others}"
        )


@dataclass(frozen=True)
class Change:
    """A prompt that became worse.

    Attributes:
        prompt: its text.
        now: its value.
        best: its best value before.
        epoch: of the best.
        p: probability of so large a change by chance, over all prompts and earlier evaluations together.
    """

    prompt: str
    now: float
    best: float
    epoch: float
    p: float


class PromptTracker(ABC):
    """Follows a value of each prompt's samples: who is worse than at its best at two evaluations in a row.

    A best is one of many evaluations, chosen for its luck, so three things keep chance from being taken for a change
    where all evaluations have samples of their own. The standard error of the best is the largest of all evaluations
    before, since a lucky one may have a small error too. P-values are Student's, as errors of a few samples are
    estimates. And they are multiplied by the number of evaluations before (Bonferroni), any of which may be the best.
    Samples are not paired by their seeds: a prompt that has collapsed has nothing in common with what it was.

    A subclass says what the value is and how findings speak of it.

    Args:
        groups: of samples that are judged together.

    Attributes:
        evaluations: their number.
        values: the best of each prompt.
        epochs: of the best.
        errors: the largest standard error so far.
        standing: prompts that are worse at the last evaluation and the one before, the surest first, then the largest.
        recovered: prompts that were among these until the last evaluation.
    """

    name: ClassVar[str]
    """Its keys are `name_1`, `name_2` and so on."""
    about: ClassVar[str]
    chart: ClassVar[str]
    better: ClassVar[Better]
    verdict: ClassVar[str]
    """Words for prompts that are worse; "{their}" stands for "its" where one prompt is judged alone."""

    def __init__(self, groups: PromptGroups) -> None:
        self.groups = groups
        self.evaluations = 0
        self.values: dict[str, float] = {}
        self.epochs: dict[str, float] = {}
        self.errors: dict[str, float] = {}
        self.standing: list[Change] = []
        self.recovered: list[str] = []
        self._degradations = DegradationDetector()

    @abstractmethod
    def said(self, change: Change) -> tuple[str, str, str]:
        """Put a change into words.

        Returns:
            How the samples of the worst prompt are, up to the epoch of its best; the value, as another prompt is named
            with it; and what stands in front of the p-value.
        """

    @abstractmethod
    def far(self, found: Mapping[str, Estimate]) -> list[str]:
        """Name the prompts whose change is large enough to deserve an alert, however sure."""

    def update(self, found: Mapping[str, Estimate], epoch: float) -> list[Change]:
        """Take in an evaluation; return those of the standing changes that are new.

        Args:
            found: the value of each prompt, of the same prompts every time.
            epoch: of the evaluation.
        """
        scores = self.scores(found)
        p = p_values_of_change(scores, worse=True)
        # a new one, since what a commit that fails puts back does not reach into it
        self._degradations = copy.deepcopy(self._degradations)
        new = self._degradations.update(scores, self.far(found))
        self.recovered = self._degradations.recovered
        changes = [
            Change(name, found[name].value, self.values[name], self.epochs[name], p[name])
            for name in self._degradations.standing()
        ]
        self.standing = sorted(changes, key=lambda change: (change.p, -self._by(change.now, change.best)))
        for name, now in found.items():
            if name not in self.values or self._by(now.value, self.values[name]) < 0:
                self.values[name], self.epochs[name] = now.value, epoch
            self.errors[name] = max(now.error, self.errors.get(name, 0.0))
        self.evaluations += 1
        return [change for change in self.standing if change.prompt in new]

    def scores(self, found: Mapping[str, Estimate]) -> dict[str, float]:
        """Return the standard score of each prompt's change for the worse, as `p_values_of_change` takes it.

        It is 0 where a prompt is not worse by more than chance; {} at first.
        """
        from scipy.special import stdtr

        out = {}
        for name, now in found.items():
            if name in self.values:
                error = math.hypot(now.error, self.errors[name], RESOLUTION)
                p = self.evaluations * float(stdtr(now.samples - 1, -self._by(now.value, self.values[name]) / error))
                out[name] = NormalDist().inv_cdf(min(max(p, SMALLEST_P), 0.5))
        return out

    def state_dict(self) -> dict[str, Any]:
        """Return plain Python only."""
        best = {"values": dict(self.values), "epochs": dict(self.epochs), "errors": dict(self.errors)}
        return best | {"evaluations": self.evaluations, "degradations": self._degradations.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self.values, self.epochs, self.errors = (dict(state[name]) for name in ("values", "epochs", "errors"))
        self.evaluations = state["evaluations"]
        self._degradations.load_state_dict(state["degradations"])

    def _by(self, now: float, best: float) -> float:
        """Return by how much a value is worse than another."""
        return best - now if self.better == "high" else now - best

    def specs(self) -> dict[str, ValueSpec]:
        """Return the declaration of the value of each group that has a curve, by its name."""
        return {
            group: ValueSpec(
                f"{self.name}_{number}",
                self.about,
                f"{self.name} of {group}",
                chart=self.chart,
                better=self.better,
                detail=True,
            )
            for number, group in enumerate(self.groups.names[:CURVES], start=1)
        }

    def by_key(self, found: Mapping[str, Estimate]) -> dict[str, float]:
        """Return the estimates that have a curve, by key."""
        return {spec.key: found[group].value for group, spec in self.specs().items() if group in found}

    def alerts(self, found: Mapping[str, Estimate], record: Record) -> list[Finding]:
        """Take in an evaluation; return a finding if prompts are worse from now on."""
        return self.finding(self.update(found, record["epoch"]), record)

    def findings(self, record: Record) -> list[Finding]:
        """Return findings about the prompts that are worse than at their best, and those that no longer are."""
        keys = {name: spec.key for name, spec in self.specs().items()}
        over = [recovered(self.groups.area(name), keys.get(name)) for name in self.recovered]
        return [*self.finding(self.standing, record), *over]

    def finding(self, changes: Sequence[Change], record: Record) -> list[Finding]:
        """Return a finding about the prompts that became worse, none where none has.

        Args:
            changes: the prompts, the surest first.
            record: of the evaluation.
        """
        if not changes:
            return []
        first, specs = changes[0], self.specs()
        how, _, before_p = self.said(first)
        their, the = ("its", "its") if self.groups.by_prompt else ("their", "the")
        area = self.groups.area(first.prompt)
        verdict = self.verdict.format(their=their)
        text = (
            f"{capitalized(area.name)} {verdict}: at epoch {record['epoch']:g} and the evaluation before, {the} "
            f"samples {how} at epoch {first.epoch:g}, {their} best "
            f"({before_p}{format_p(first.p)}){self._others(changes)}."
        )
        measure = specs[first.prompt].key if first.prompt in specs else None
        return [Finding(text, area, verdict, measure, False, first.p)]

    def _others(self, changes: Sequence[Change]) -> str:
        """Name the prompts after the first, with a value each; "" where there are none."""
        if len(changes) < 2:
            return ""
        some = [f"{quoted(change.prompt)} ({self.said(change)[1]})" for change in changes[1 : NAMED + 1]]
        more = f" and {len(changes) - 1 - NAMED} more" if len(changes) > NAMED + 1 else ""
        return f"; so did {', '.join(some)}{more}"


def quoted(prompt: object) -> str:
    """Return a prompt in quotes, cut where it is long."""
    # repr, since what a prompt holds must not move a terminal's cursor
    text = str(prompt)
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
