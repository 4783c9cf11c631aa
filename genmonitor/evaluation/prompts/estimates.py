# SPDX-License-Identifier: Apache-2.0
"""Estimates of each prompt's samples: who is judged alone, who became worse than at its best, and in which words."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import Any, Literal

import torch
from torch import Tensor

from genmonitor._formatting import capitalized, format_p
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.findings import ALERT_FACTOR, Area, DegradationDetector, Finding, p_values_of_change
from genmonitor.evaluation.results import Record
from genmonitor.evaluation.values import ValueSpec
from genmonitor.functional.kernel_means import kernel_dispersion
from genmonitor.functional.mmd_influence import RealSide
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.kernels import Kernel

ALL = "all samples"
"""Name of all samples, where single prompts have too few or there are no prompts."""
CURVES = 20
"""Prompts whose measure has a curve, the first ones."""
NAMED = 5
"""Further prompts that an alert names."""
RESOLUTION = 1e-6
"""Effect of rounding on a value: no standard error is taken to be smaller."""
SMALLEST_P = 1e-300
SPREAD_FACTOR = 4.0
"""Factor by which a prompt keeps less of its best than a typical one before an alert, if the highest is best.

As a conditional GAN learned digits, healthy classes fell to a third of the spread of their first epochs, all together.
"""
COLLAPSED = 0.1
"""A typical prompt that keeps no more than this part of its best has not learned but collapsed, with the others."""


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


def spread_by_prompt(features: Tensor, groups: PromptGroups, kernel: Kernel) -> dict[str, Estimate]:
    """Estimate the spread of each prompt's samples, see `kernel_dispersion`.

    Args:
        features: of all samples [N, D], row i of sample i.
        groups: of samples judged together.
        kernel: of the features.
    """
    out = {}
    for name, rows in groups.split(features).items():
        found = kernel_dispersion(rows, kernel)
        out[name] = Estimate(float(found.value), float(found.standard_error), len(rows))
    return out


class PromptDistances:
    """Distances of each prompt's samples from the reference's: squared MMD without bias, see `mmd_influence`.

    Args:
        reference: features of all its samples [M, D], row i of the prompt of sample i.
        groups: of samples judged together.
    """

    def __init__(self, reference: Tensor, groups: PromptGroups) -> None:
        self._groups = groups
        self._sides = {name: RealSide.of(rows, None, None) for name, rows in groups.split(_wide(reference)).items()}

    def measure(self, features: Tensor) -> dict[str, Estimate]:
        """Estimate the distance of each prompt from features [N, D], row i of sample i."""
        out = {}
        for name, rows in self._groups.split(_wide(features)).items():
            side = self._sides[name]
            found = side.influence(rows.to(side.samples))
            n, m = len(rows), len(side.samples)
            error = (found.fake.var() / n + found.real.var() / m).sqrt()
            out[name] = Estimate(float(found.mmd), float(error), min(n, m))
        return out


def _wide(features: Tensor) -> Tensor:
    """Convert features to a dtype that resolves a kernel's small differences."""
    return features if features.dtype == torch.float64 else features.float()


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


class PromptChanges:
    """Comparison of each prompt with its best evaluation: which are worse at two evaluations in a row.

    A best is one of many evaluations, chosen for its luck, so three things keep chance from being taken for a change
    where all evaluations have samples of their own. The standard error of the best is the largest of all evaluations
    before, since a lucky one may have a small error too. P-values are Student's, as errors of a few samples are
    estimates. And they are multiplied by the number of evaluations before (Bonferroni), any of which may be the best.
    Samples are not paired by their seeds: a prompt that has collapsed has nothing in common with what it was.

    Args:
        highest: whether the best is the highest value, else it is the lowest.

    Attributes:
        evaluations: their number.
        values: the best of each prompt.
        epochs: of the best.
        errors: the largest standard error so far.
        standing: prompts that are worse at the last evaluation and the one before, the surest first, then the largest.
        recovered: prompts that were among these until the last evaluation.
    """

    def __init__(self, *, highest: bool) -> None:
        self.highest = highest
        self.evaluations = 0
        self.values: dict[str, float] = {}
        self.epochs: dict[str, float] = {}
        self.errors: dict[str, float] = {}
        self.standing: list[Change] = []
        self.recovered: list[str] = []
        self._degradations = DegradationDetector()

    def update(self, found: Mapping[str, Estimate], epoch: float, limit: float = math.inf) -> list[Change]:
        """Take in an evaluation; return those of the standing changes that are new.

        Args:
            found: the value of each prompt, of the same prompts every time.
            epoch: of the evaluation.
            limit: where the highest is best, a best beyond this counts as this.
        """
        scores = self.scores(found)
        p = p_values_of_change(scores, worse=True)
        # a new one, since what a commit that fails puts back does not reach into it
        self._degradations = copy.deepcopy(self._degradations)
        new = self._degradations.update(scores, self._far(found, limit))
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
        return best - now if self.highest else now - best

    def _far(self, found: Mapping[str, Estimate], limit: float) -> list[str]:
        """Name the prompts whose change is large enough to deserve an alert, however sure."""
        if not self.highest:
            return [name for name, best in self.values.items() if found[name].value >= ALERT_FACTOR * best]
        bests = {name: min(best, limit) for name, best in self.values.items()}
        kept = {name: found[name].value / best if best > RESOLUTION else 1.0 for name, best in bests.items()}
        typical = min(1.0, median(kept.values())) if kept else 1.0
        # a model that learns what its prompts mean varies each one less: that is no collapse of those that only follow
        allowed = (typical if typical > COLLAPSED else 1.0) / SPREAD_FACTOR
        return [name for name, part in kept.items() if part <= allowed]


@dataclass(frozen=True)
class PromptMeasure:
    """A measure of each prompt's samples, by which alerts go, and what they say.

    Attributes:
        name: its keys are `name_1`, `name_2` and so on.
        about: what it measures.
        chart: title of the chart of all prompts.
        better: whether the highest or the lowest value of a prompt is its best.
        verdict: what became of prompts that are worse; "{their}" stands for "its" where one prompt is judged alone.
        how: says how the samples of the worst are, up to the epoch of its best.
        value: of a prompt, as it is named after the worst.
        before_p: of the worst, in front of the p-value.
    """

    name: str
    about: str
    chart: str
    better: Literal["high", "low"]
    verdict: str
    how: Callable[[Change], str]
    value: Callable[[Change], str]
    before_p: Callable[[Change], str] = lambda _: ""

    def specs(self, groups: PromptGroups) -> dict[str, ValueSpec]:
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
            for number, group in enumerate(groups.names[:CURVES], start=1)
        }

    def values(self, found: Mapping[str, Estimate], groups: PromptGroups) -> dict[str, float]:
        """Return the estimates that have a curve, by key."""
        return {spec.key: found[group].value for group, spec in self.specs(groups).items() if group in found}

    def findings(self, changes: Sequence[Change], record: Record, groups: PromptGroups) -> list[Finding]:
        """Return a finding about the prompts that became worse, none where none has.

        Args:
            changes: the prompts, the surest first.
            record: of the evaluation.
            groups: that are judged.
        """
        if not changes:
            return []
        first, specs = changes[0], self.specs(groups)
        their, the = ("its", "its") if groups.by_prompt else ("their", "the")
        area = groups.area(first.prompt)
        verdict = self.verdict.format(their=their)
        text = (
            f"{capitalized(area.name)} {verdict}: at epoch {record['epoch']:g} and the evaluation before, {the} "
            f"samples {self.how(first)} at epoch {first.epoch:g}, {their} best "
            f"({self.before_p(first)}{format_p(first.p)}){self._others(changes)}."
        )
        measure = specs[first.prompt].key if first.prompt in specs else None
        return [Finding(text, area, verdict, measure, False, first.p)]

    def _others(self, changes: Sequence[Change]) -> str:
        """Name the prompts after the first, with a value each; "" where there are none."""
        if len(changes) < 2:
            return ""
        some = [f"{quoted(change.prompt)} ({self.value(change)})" for change in changes[1 : NAMED + 1]]
        more = f" and {len(changes) - 1 - NAMED} more" if len(changes) > NAMED + 1 else ""
        return f"; so did {', '.join(some)}{more}"


def quoted(prompt: object) -> str:
    """Return a prompt in quotes, cut where it is long."""
    # repr, since what a prompt holds must not move a terminal's cursor
    text = str(prompt)
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
