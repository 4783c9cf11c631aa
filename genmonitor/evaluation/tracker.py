# SPDX-License-Identifier: Apache-2.0
"""Tracker of groups that got worse: the value of each region or prompt compared with its best so far."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar

import torch

from genmonitor._formatting import capitalized, format_p, significant
from genmonitor.findings.finding import Area, Finding, differs
from genmonitor.findings.values import Better, Values
from genmonitor.functional.relative_similarity import holm

ALERT_LEVEL = 0.002
"""Level of each of the two evaluations that an alert needs; `benchmarks/detection.py` measures the effect."""
IN_A_ROW = 2
"""Number of evaluations in a row with a fault before there is an alert."""


@dataclass(frozen=True)
class Change:
    """A group that is worse than at its best evaluation.

    Attributes:
        name: Name of the group.
        now: Value of the group.
        best: Best value before.
        epoch: Epoch of the best value.
        p: Probability of such a change by chance, for all groups together.
        since: First epoch since which it is worse without interruption; None if unknown.
    """

    name: str
    now: float
    best: float
    epoch: float
    p: float
    since: float | None = None

    @property
    def by(self) -> float:
        """Size of the change."""
        return abs(self.now - self.best)


class Tracker(ABC):
    """Compares a value of each group with its best so far, and names groups that got far worse.

    A group is named once it is far worse at two evaluations in a row, and again only after a recovery. A subclass
    defines the value, the significance of a change, and the size from which it deserves an alert.

    Attributes:
        best: Best value of each group.
        epochs: Epoch of the best value of each group.
        standing: Groups that were far worse at the last two evaluations, the most significant first.
        recovered: Names of groups that were among these until the last evaluation.
    """

    quantity: ClassVar[str]
    """Words for the value."""
    better: ClassVar[Better]
    worse: str = "got worse"

    def __init__(self) -> None:
        self.best: dict[str, float] = {}
        self.epochs: dict[str, float] = {}
        self.standing: list[Change] = []
        self.recovered: list[str] = []
        self._in_a_row: dict[str, int] = {}
        self._since: dict[str, float] = {}

    @abstractmethod
    def far(self, values: Values) -> Collection[str]:
        """Return the names of the groups whose change is large enough for an alert, significant or not."""

    def written(self, value: float) -> str:
        """Return a value as text; values below 0, or hardly above, are rounding or chance."""
        return significant(round(max(0.0, value), 6))

    def verdict(self, change: Change) -> str:
        """Return the words for a change in a table."""
        return self.worse

    def changes(self, values: Values, scores: Values) -> list[Change]:
        """Return the groups that are worse than at their best by more than chance, the most significant first.

        Args:
            values: Values of each group.
            scores: Improvement of each group over its best, in standard errors; nan if unknown.
        """
        found = []
        for name, p in p_values_of_change(scores).items():
            if differs(p) and name in self.best and self._is_better(self.best[name], values[name]):
                found.append(Change(name, values[name], self.best[name], self.epochs[name], p, self._since.get(name)))
        return sorted(found, key=lambda change: (change.p, -change.by))

    def track(self, values: Values, scores: Values, epoch: float) -> list[Change]:
        """Add an evaluation; return the groups that newly deserve an alert.

        Args:
            values: Same as in `changes`.
            scores: Same as in `changes`.
            epoch: Epoch of the evaluation.
        """
        far, before = self.far(values), self._in_a_row
        changes = self.changes(values, scores)
        self._since = {x.name: epoch if x.since is None else x.since for x in changes}
        worse = [replace(x, since=self._since[x.name]) for x in changes if x.p <= ALERT_LEVEL and x.name in far]
        self._in_a_row = {x.name: before.get(x.name, 0) + 1 for x in worse}
        self.standing = [x for x in worse if self._in_a_row[x.name] >= IN_A_ROW]
        self.recovered = [name for name, count in before.items() if count >= IN_A_ROW and name not in self._in_a_row]
        for name in self.improved(values):
            self.best[name], self.epochs[name] = values[name], epoch
        return [x for x in self.standing if self._in_a_row[x.name] == IN_A_ROW]

    def improved(self, values: Values) -> list[str]:
        """Return the names of the groups that are better than ever before."""
        return [x for x, value in values.items() if x not in self.best or self._is_better(value, self.best[x])]

    def _is_better(self, value: float, other: float) -> bool:
        return value > other if self.better == "high" else value < other

    def findings_of(
        self, changes: Sequence[Change], epoch: float, area: Callable[[str], Area], keys: Mapping[str, str]
    ) -> list[Finding]:
        """Return one finding of the groups that got worse, or none.

        Args:
            changes: Changes of the groups; the first is described in full.
            epoch: Epoch of the evaluation.
            area: Function from a name to the area of the finding.
            keys: Keys of the values that have a curve, by name.
        """
        if not changes:
            return []
        named = 5  # groups besides the first
        first, others = changes[0], changes[1 : named + 1]
        about, now, best = area(first.name), self.written(first.now), self.written(first.best)
        since = None if first.since == epoch else first.since
        when = "" if since is None else f" since epoch {since:g}"
        text = (
            f"{capitalized(str(about))} {self.worse}{when}: {self.quantity} {now} at epoch {epoch:g}, {best} at epoch "
            f"{first.epoch:g}, its best ({format_p(first.p)})"
        )
        if others:
            text += f"; so did {', '.join(f'{quoted(x.name)} ({self.written(x.now)})' for x in others)}"
        if len(changes) > named + 1:
            text += f" and {len(changes) - named - 1} more"
        return [Finding(f"{text}.", about, self.verdict(first), keys.get(first.name), False, first.p, since)]

    def findings_of_recovered(self, area: Callable[[str], Area], keys: Mapping[str, str]) -> list[Finding]:
        """Return the findings of groups that are no longer far worse than at their best."""
        out = []
        for name in self.recovered:
            text = f"{capitalized(str(area(name)))}: recovered, no longer far worse than at its best."
            out.append(Finding(text, area(name), "recovered", keys.get(name), fine=True))
        return out

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain Python."""
        best = {"best": dict(self.best), "epochs": dict(self.epochs)}
        return best | {"in_a_row": dict(self._in_a_row), "since": dict(self._since)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self.best, self.epochs = dict(state["best"]), dict(state["epochs"])
        self._in_a_row, self._since = dict(state["in_a_row"]), dict(state["since"])


def p_values_of_change(scores: Values) -> dict[str, float]:
    """Return the p-value of each change for the worse, for all of them together (Holm).

    Args:
        scores: Improvement of each group over its best, in standard errors; nan if unknown.

    Example:
        >>> found = p_values_of_change({"cluster_1": -3.0, "cluster_2": 0.0})
        >>> {name: round(p, 4) for name, p in found.items()}
        {'cluster_1': 0.0027, 'cluster_2': 0.5}
    """
    known = {name: NormalDist().cdf(z) for name, z in scores.items() if not math.isnan(z)}
    p = torch.tensor(list(known.values()), dtype=torch.float64)
    adjusted = holm(p, torch.ones_like(p, dtype=torch.bool)).tolist()
    return dict.fromkeys(scores, 1.0) | dict(zip(known, adjusted, strict=True))


def quoted(prompt: object) -> str:
    """Return a prompt in quotes, shortened if it is long."""
    # repr, since characters of a prompt must not move the cursor of a terminal
    text = str(prompt)
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
