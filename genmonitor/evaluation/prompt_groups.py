# SPDX-License-Identifier: Apache-2.0
"""Groups of samples by their prompts, and the tracker of a value of each group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar

import torch
from torch import Tensor

from genmonitor.evaluation.results import Record
from genmonitor.evaluation.tracker import Change, Tracker, quoted
from genmonitor.findings.finding import Area, Finding
from genmonitor.findings.values import ValueSpec
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.images.prompts import Prompts

ALL = "all samples"
"""Name of all samples, if single prompts have too few samples or there are no prompts."""
CURVES = 20
"""Number of prompts whose value has a curve, the first ones."""
RESOLUTION = 1e-6
"""Effect of rounding on a value, the smallest possible standard error."""


@dataclass(frozen=True)
class Estimate:
    """A value of a prompt's samples.

    Attributes:
        value: The estimate.
        error: Its standard error.
        samples: Number of samples behind the error.
    """

    value: float
    error: float
    samples: int


class PromptGroups:
    """Groups of samples to judge together: those of each prompt with enough samples, or all if no prompt has enough.

    Args:
        prompts: Prompts, where sample i has prompt i modulo their number; None for a generator without prompts.
        sizes: Number of samples on each side of a comparison.

    Attributes:
        by_prompt: True if samples are judged prompt by prompt.
        left_out: Number of prompts with too few samples to judge.
        names: Names of the groups that are judged.

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
        """Split rows [N, ...], row i of sample i, by the judged prompts; {} if there are too few.

        Args:
            rows: Rows of all samples of a side.
        """
        if self._prompts is None or not self.by_prompt:
            return {ALL: rows} if self._any else {}
        numbers = self._prompts.numbers(torch.arange(len(rows), device=rows.device))
        judged = [(i, prompt) for i, prompt in enumerate(self._prompts.distinct) if self._enough[i]]
        return {str(prompt): rows[numbers == i] for i, prompt in judged}

    def area(self, name: str) -> Area:
        """Return the area of a finding about a group."""
        return Area(f"prompt {quoted(name)}" if self.by_prompt else name)

    def messages(self) -> tuple[str, ...]:
        """Return a message about the prompts with too few samples for alerts; () if there are none."""
        if not self.left_out:
            return ()
        few = f"{self.left_out} of {len(self._enough)} prompts have fewer than {MIN_SAMPLES} samples"
        about = "the others" if self.by_prompt else "all samples together" if self._any else "nothing"
        return (f"{few}, too few for alerts about them; alerts are about {about}.",)


class PromptTracker(Tracker):
    """Tracks a value of each prompt's samples.

    The best evaluation is partly chosen by luck. Three measures keep chance from being taken for a change if all
    evaluations have new samples. The standard error of the best is the largest of all evaluations before, since a lucky
    one may have a small error too. P-values are those of Student's t, since errors of a few samples are estimates. They
    are multiplied by the number of evaluations before (Bonferroni), any of which may be the best. Samples are not
    paired by seed, since a collapsed prompt has nothing in common with its earlier samples.

    Args:
        groups: Groups of samples that are judged together.

    Attributes:
        errors: Largest standard error of each group so far.
        evaluations: Number of evaluations.
    """

    spec: ClassVar[ValueSpec]
    """Declaration of the value; keys are those of groups, `spread_1` and so on."""

    def __init__(self, groups: PromptGroups) -> None:
        super().__init__()
        self.groups = groups
        self.errors: dict[str, float] = {}
        self.evaluations = 0

    def update(self, found: Mapping[str, Estimate], epoch: float) -> list[Change]:
        """Add the estimates of an evaluation; return the groups that newly deserve an alert."""
        new = self.track({name: x.value for name, x in found.items()}, self.scores(found), epoch)
        self.errors |= {name: max(x.error, self.errors.get(name, 0.0)) for name, x in found.items()}
        self.evaluations += 1
        return new

    def scores(self, found: Mapping[str, Estimate]) -> dict[str, float]:
        """Return the standard score of each group's change, 0 if it is not worse by more than chance."""
        from scipy.special import stdtr

        out = {}
        for name, now in found.items():
            if name not in self.best:
                continue
            by = self.best[name] - now.value if self.better == "high" else now.value - self.best[name]
            error = math.hypot(now.error, self.errors[name], RESOLUTION)
            p = self.evaluations * float(stdtr(now.samples - 1, -by / error))
            out[name] = NormalDist().inv_cdf(min(max(p, 1e-300), 0.5))
        return out

    def specs(self) -> dict[str, ValueSpec]:
        """Return the declarations of the values of groups that have a curve, by name."""
        key = self.spec.key
        numbered = enumerate(self.groups.names[:CURVES], start=1)
        return {group: replace(self.spec, key=f"{key}_{i}", label=f"{key} of {group}") for i, group in numbered}

    def by_key(self, found: Mapping[str, Estimate]) -> dict[str, float]:
        """Return the estimates that have a curve, by key."""
        return {spec.key: found[group].value for group, spec in self.specs().items() if group in found}

    def alerts(self, found: Mapping[str, Estimate], record: Record) -> list[Finding]:
        """Add an evaluation; return a finding if groups are newly far worse."""
        return self.finding(self.update(found, record["epoch"]), record)

    def findings(self, record: Record) -> list[Finding]:
        """Return findings of the groups that are far worse than at their best, and of those that no longer are."""
        return [*self.finding(self.standing, record), *self.findings_of_recovered(self.groups.area, self._keys())]

    def finding(self, changes: list[Change], record: Record) -> list[Finding]:
        """Return a finding of the groups that got worse, or none."""
        # an evaluation outside of a run has no epoch, and no change since an earlier one
        return self.findings_of(changes, record.get("epoch", 0), self.groups.area, self._keys())

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain Python."""
        return super().state_dict() | {"errors": dict(self.errors), "evaluations": self.evaluations}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        super().load_state_dict(state)
        self.errors, self.evaluations = dict(state["errors"]), state["evaluations"]

    def _keys(self) -> dict[str, str]:
        return {name: spec.key for name, spec in self.specs().items()}
