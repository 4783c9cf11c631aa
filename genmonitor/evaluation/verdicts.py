# SPDX-License-Identifier: Apache-2.0
"""Verdicts by p-values and standardized differences: what differs, and what got worse or better."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from statistics import NormalDist

LEVEL = 0.05
"""The level of a verdict, of all regions of an evaluation together."""
ALERT_LEVEL = 0.002
"""The level of each of the two evaluations that an alert needs; `benchmarks/detection.py` says what comes of it."""
EVALUATIONS_BELOW = 2
ALERT_FACTOR = 2.0
"""How many times as far from real images as at its best a region is that deserves an alert, however sure the change."""


def differs(p: float) -> bool:
    """Say whether a p-value is at the level of a verdict."""
    return p <= LEVEL


def p_values_of_change(scores: Mapping[str, float], *, worse: bool) -> dict[str, float]:
    """Return how likely each change for the worse (or the better) is by chance, for all of them together (Holm).

    Args:
        scores: by how many standard errors each is better than at its best; nan where nothing is known.
        worse: what to test for.

    Example:
        >>> found = p_values_of_change({"cluster_1": -3.0, "cluster_2": 0.0}, worse=True)
        >>> {name: round(p, 4) for name, p in found.items()}
        {'cluster_1': 0.0027, 'cluster_2': 0.5}
    """
    single = {name: NormalDist().cdf(z if worse else -z) for name, z in scores.items() if not math.isnan(z)}
    out, largest = dict.fromkeys(scores, 1.0), 0.0
    for rank, name in enumerate(sorted(single, key=lambda name: single[name])):
        largest = max(largest, min(1.0, single[name] * (len(single) - rank)))
        out[name] = largest
    return out


class DegradationDetector:
    """Names what is far worse than at its best at two evaluations in a row, each once until it recovers.

    Example:
        >>> detector = DegradationDetector()
        >>> [detector.update({"cluster_1": z}, far=["cluster_1"]) for z in (0.3, -9.0, -9.0, -9.0, 0.1)]
        [[], [], ['cluster_1'], [], []]
    """

    def __init__(self) -> None:
        self.below: dict[str, int] = {}

    def update(self, scores: Mapping[str, float], far: Collection[str]) -> list[str]:
        """Take in one evaluation; return the names that are far worse from now on.

        Args:
            scores: as for `p_values_of_change`.
            far: those whose change is large enough to deserve an alert.
        """
        degraded = []
        for name, p in p_values_of_change(scores, worse=True).items():
            self.below[name] = self.below.get(name, 0) + 1 if p <= ALERT_LEVEL and name in far else 0
            if self.below[name] == EVALUATIONS_BELOW:
                degraded.append(name)
        return degraded

    def standing(self) -> list[str]:
        """Return the names that are far worse at the last evaluation and the one before, whenever they were named."""
        return [name for name, count in self.below.items() if count >= EVALUATIONS_BELOW]

    def state_dict(self) -> dict[str, int]:
        """Return plain Python only."""
        return dict(self.below)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Take over a saved state."""
        self.below = dict(state)
