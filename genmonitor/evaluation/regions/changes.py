# SPDX-License-Identifier: Apache-2.0
"""What is visibly worse than at the best evaluation of a run: said at the first evaluation that shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from genmonitor._formatting import format_p
from genmonitor.evaluation.findings import Area, Finding
from genmonitor.functional.diagnosis.images import SAMPLES
from genmonitor.functional.diagnosis.readings import READINGS, Said, differing, read, usable_readings

LEVEL = 0.001
"""Level of a change, for all readings together: the least that 999 permutations allow."""
MANY = 0.3
"""Part of the images that must show a change: less comes and goes while a generator learns."""
FARTHER = 1.25
"""Times the error ratio of the best evaluation, 1 at least, beyond which one may be worse: less is chance."""
LOOKED_AT = 500
"""Images a side at most."""


class Change(NamedTuple):
    """An evaluation beside the best one before it.

    Attributes:
        distance: of the samples from real images, less for better ones.
        readings: of the samples [N, R].
        finding: what is visibly worse; None where nothing is.
    """

    distance: float
    readings: Tensor
    finding: Finding | None


class Changes:
    """Readings of the samples of the best evaluation, with which later ones are compared.

    Example:
        >>> import torch
        >>> draw = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0)).cumsum(3) / 8
        >>> changes, real = Changes(), draw[100:]
        >>> changes.keep(changes.compare(draw[:100], real, distance=1.0, seed=0), epoch=3.0)
        >>> str(changes.compare(draw[:100] / 2, real, distance=9.0, seed=0).finding)[:42]
        'Visibly worse than at epoch 3, its best: b'
    """

    def __init__(self) -> None:
        self.epoch, self.distance = math.nan, math.inf
        self.readings: Tensor | None = None

    def compare(self, fake: Tensor, real: Tensor, distance: float, seed: int, aligned: bool = True) -> Change:
        """Compare an evaluation with the best before it.

        Args:
            fake: generated images [N, C, H, W].
            real: real ones [M, C, H, W].
            distance: of the generated images from the real ones.
            seed: of the permutations.
            aligned: True if the same places of images can be compared.
        """
        low, span = float(real.min()), float(real.max() - real.min()) or 1.0
        readings = usable_readings(READINGS, real, aligned)
        now, target = (read(readings, (x[:LOOKED_AT].float() - low) / span) for x in (fake, real))
        best = self.readings
        if best is None or best.shape[1] != now.shape[1] or not distance > FARTHER * max(self.distance, 1.0):
            return Change(distance, now, None)
        middle = dict(zip((x.name for x in readings), target.median(0).values.tolist(), strict=True))
        changed = differing(readings, now, best, LEVEL, seed)
        worse = [x for x in changed if x.share >= MANY and _is_worse(x, middle[x.reading.name])]
        return Change(distance, now, self._finding(worse) if worse else None)

    def keep(self, change: Change, epoch: float) -> None:
        """Keep an evaluation if it is the best so far."""
        if change.distance < self.distance:
            self.epoch, self.distance, self.readings = epoch, change.distance, change.readings

    def _finding(self, worse: Sequence[Said]) -> Finding:
        said = "; ".join(x.beside("was") for x in worse)
        text = f"Visibly worse than at epoch {self.epoch:g}, its best: {said}; {format_p(worse[0].p)}."
        samples = tuple(worse[0].order[:SAMPLES].tolist())
        return Finding(text, Area("image"), "", None, fine=False, p=worse[0].p, samples=samples)

    def state_dict(self) -> dict[str, Any]:
        """Return numbers and a tensor."""
        return {"epoch": self.epoch, "distance": self.distance, "readings": self.readings}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self.epoch, self.distance, self.readings = state["epoch"], state["distance"], state["readings"]


def _is_worse(change: Said, target: float) -> bool:
    """Return True if a reading is visibly farther from that of real images than it was."""
    return abs(change.fake - target) >= abs(change.real - target) + change.reading.visible
