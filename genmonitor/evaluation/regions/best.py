# SPDX-License-Identifier: Apache-2.0
"""The best evaluation so far of each region, and by how much another one differs from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from genmonitor.functional.mmd_influence import MMDInfluence
from genmonitor.functional.relative_similarity import check_comparable, relative_similarity_from_influences

LEAST_BEST = 2.0
"""Standard deviations of chance as which a best value below them counts: less cannot be told from real images."""


class BestSoFar:
    """Keeps the influences of each region's best evaluation: all that a later one needs to be compared with it.

    Attributes:
        epochs: of each region's best evaluation.
    """

    def __init__(self) -> None:
        self._influence: MMDInfluence | None = None
        self.epochs: dict[str, float] = {}

    def scores(self, current: MMDInfluence) -> dict[str, float]:
        """Return by how many standard errors each region's MMD² is lower than at its best before; {} at first.

        Sample i of all evaluations has one seed, so samples are compared in pairs. nan where real images do not vary.
        """
        best = self._comparable(current)
        if best is None:
            return {}
        found = relative_similarity_from_influences(current, best, paired=True)
        return {
            name: float(test.difference / test.standard_error) if test.standard_error > 0 else math.nan
            for name, test in found.items()
        }

    def farther_by(self, current: MMDInfluence, factor: float) -> set[str]:
        """Name the regions whose MMD² is so many times that of their best before, at one of the kernel's gammas.

        What was as near to real images as these are to each other counts as far from them as chance may bring it.

        The mean over gammas alone would hide faults of a generator that is far from real images: under noise in all
        pixels the narrow Gaussians are so far off that the mean hardly moves, and the wide ones see the rest.
        """
        best = self._comparable(current)
        if best is None:
            return set()
        least = LEAST_BEST * best.by_chance
        farther = (current.by_gamma >= factor * torch.maximum(best.by_gamma, least)).any(1)
        return {name for name, yes in zip(current.regions, farther.tolist(), strict=True) if yes}

    def update(self, current: MMDInfluence, epoch: float) -> None:
        """Take note of an evaluation; where it cannot be compared with those before, it is the first."""
        best = self._comparable(current)
        if best is None:
            self._influence, self.epochs = current, dict.fromkeys(current.regions, epoch)
            return
        better = current.mmd < best.mmd
        self.epochs |= {name: epoch for name, yes in zip(current.regions, better.tolist(), strict=True) if yes}
        rows = better[:, None]
        self._influence = best._replace(
            mmd=torch.where(better, current.mmd, best.mmd),
            fake=torch.where(rows, current.fake, best.fake),
            real=torch.where(rows, current.real, best.real),
            second_order=torch.where(better, current.second_order, best.second_order),
            by_gamma=torch.where(rows, current.by_gamma, best.by_gamma),
        )

    def _comparable(self, current: MMDInfluence) -> MMDInfluence | None:
        """Return the best if it was measured against the same thing, which a resumed run's encoder may change."""
        best = self._influence
        if best is None or best.fake.shape != current.fake.shape:
            return None
        try:
            check_comparable(current, best)
        except ValueError:
            return None
        return best

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain Python only."""
        if self._influence is None:
            return {}
        influence = self._influence._asdict()
        return {"influence": influence | {"regions": list(influence["regions"])}, "epochs": dict(self.epochs)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self._influence, self.epochs = None, {}
        if state:
            self._influence = MMDInfluence(**state["influence"] | {"regions": tuple(state["influence"]["regions"])})
            self.epochs = dict(state["epochs"])
