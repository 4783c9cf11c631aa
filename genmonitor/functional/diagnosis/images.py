# SPDX-License-Identifier: Apache-2.0
"""Images of a diagnosis: some of each side, on one scale, in halves for fitting and judging faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.distance import Distance, Values
from genmonitor.functional.diagnosis.fit import Side
from genmonitor.functional.diagnosis.readings import Reading

SAMPLES = 8
"""Number of generated images named as examples."""


@dataclass(frozen=True, eq=False)
class Images:
    """Generated and real images, scaled so that real ones fill [0, 1], in a random order given by a seed.

    Attributes:
        fake: Generated images [N, C, H, W].
        real: Real images [M, C, H, W].
        chosen_fake: Indices of these among the given generated images [N].
        chosen_real: Indices of these among the given real images [M].
        seed: Seed of this order, and of later random choices.
        readings: Readings of single images.
    """

    fake: Tensor
    real: Tensor
    chosen_fake: Tensor
    chosen_real: Tensor
    seed: int
    readings: Sequence[Reading] = ()

    @classmethod
    def of(cls, fake: Tensor, real: Tensor, seed: int, readings: Sequence[Reading] = ()) -> Images:
        """Take at most 500 images of each side, half to fit on and half to judge on."""
        generator = torch.Generator().manual_seed(seed)
        # faults are fitted on 250 images a side at most, and judged on as many
        chosen = [torch.randperm(len(x), generator=generator)[:500] for x in (fake, real)]
        low, span = float(real.min()), float(real.max() - real.min()) or 1.0
        some_fake, some_real = ((x[at.to(x.device)] - low) / span for x, at in zip((fake, real), chosen, strict=True))
        return cls(some_fake, some_real, chosen[0], chosen[1], seed, readings)

    @property
    def halves(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Generated and real images of the two halves."""
        n, m = len(self.fake) // 2, len(self.real) // 2
        return (self.fake[:n], self.real[:m]), (self.fake[n:], self.real[m:])

    @property
    def range(self) -> tuple[float, float]:
        """Range of all images."""
        return min(float(self.fake.min()), 0.0), max(float(self.fake.max()), 1.0)


def side_to_fit(images: Images, area: Tensor, views: Sequence[Values]) -> Side:
    """Return the half to fit on, with faults put into an area, and the distance in some views."""
    (fake, real), others = images.halves
    return Side.of(Distance.of(real, views, min(map(len, others))), real, fake, area, images.range, images.seed)


def sides(images: Images, area: Tensor, views: Sequence[Values]) -> tuple[Side, Side]:
    """Return the half to fit on and the half to judge on; see `side_to_fit`."""
    fitted, (fake, real) = side_to_fit(images, area, views), images.halves[1]
    return fitted, Side.of(fitted.distance, real, fake, area, images.range, images.seed + 1)
