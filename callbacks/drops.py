# SPDX-License-Identifier: Apache-2.0
"""Noticing that a region has got worse for good."""

from __future__ import annotations

from collections.abc import Mapping

from genmonitor._formatting import reaches_baseline

CHECKS_BELOW = 2


class DropWatch:
    """Names what was at its yardstick and is below it at two checks in a row.

    One check below may be chance; what never reached its yardstick has nothing to drop from.

    Example:
        >>> watch, band = DropWatch(), {"cluster_1": (0.9, 0.95, 1.0)}
        >>> [watch.update({"cluster_1": value}, band) for value in (0.8, 0.93, 0.7, 0.7, 0.7)]
        [[], [], [], ['cluster_1'], []]
    """

    def __init__(self) -> None:
        self.reached: dict[str, bool] = {}
        self.below: dict[str, int] = {}

    def update(self, values: Mapping[str, float], lowest: Mapping[str, tuple[float, float, float]]) -> list[str]:
        """Take in one check; return the names that have now dropped, each once until it recovers."""
        dropped = []
        for name, (low, _, _) in lowest.items():
            if reaches_baseline(values[name], low):
                self.reached[name], self.below[name] = True, 0
            elif self.reached.get(name):
                self.below[name] += 1
                if self.below[name] == CHECKS_BELOW:
                    self.reached[name] = False
                    dropped.append(name)
        return dropped
