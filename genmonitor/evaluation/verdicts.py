# SPDX-License-Identifier: Apache-2.0
"""Deciding from a history whether a region has regressed."""

from __future__ import annotations

from collections.abc import Mapping

from genmonitor._formatting import reaches_baseline
from genmonitor.evaluation.baseline import Band

EVALUATIONS_BELOW = 2


class DropDetector:
    """Names regions that reached their baseline and are below it at two evaluations in a row.

    One evaluation below may be chance; a region that never reached its baseline has nothing to drop from.

    Example:
        >>> detector, baseline = DropDetector(), {"cluster_1": (0.9, 0.95, 1.0)}
        >>> [detector.update({"cluster_1": value}, baseline) for value in (0.8, 0.93, 0.7, 0.7, 0.7)]
        [[], [], [], ['cluster_1'], []]
    """

    def __init__(self) -> None:
        self.reached: dict[str, bool] = {}
        self.below: dict[str, int] = {}

    def update(self, values: Mapping[str, float], baseline: Mapping[str, Band]) -> list[str]:
        """Take in one evaluation; return the names that have now regressed, each once until it recovers."""
        regressed = []
        for name, (low, _, _) in baseline.items():
            if reaches_baseline(values[name], low):
                self.reached[name], self.below[name] = True, 0
            elif self.reached.get(name):
                self.below[name] += 1
                if self.below[name] == EVALUATIONS_BELOW:
                    self.reached[name] = False
                    regressed.append(name)
        return regressed

    def state_dict(self) -> dict[str, dict[str, int]]:
        """Return plain Python only."""
        return {"reached": dict(self.reached), "below": dict(self.below)}

    def load_state_dict(self, state: Mapping[str, Mapping[str, int]]) -> None:
        """Take over a saved state."""
        self.reached = {name: bool(value) for name, value in state["reached"].items()}
        self.below = dict(state["below"])
