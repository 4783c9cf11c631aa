# SPDX-License-Identifier: Apache-2.0
"""Statistics of each image in an area and around it, to tell kinds of faults apart better than by pixels.

Photographs differ so much in contrast that the distance of their pixels hardly changes if all have a fifth less. The
detail of an area relative to its surroundings varies far less, and so does the step at its edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.areas import grown, slices_of, within
from genmonitor.functional.diagnosis.kinds.shape import averaged
from genmonitor.linalg.whitening import REACH

LEAST = 1e-4
"""Number added to energies before their logarithm, in squares of the range; smaller energies count as none."""
SAME = 1e-3
"""Largest difference of neighbors that count as equal, as a part of the range."""
FEW = 1e-2
"""Number added to parts of pixels before their logarithm."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Brightness, contrast, detail, steps and plateaus of each image, decorrelated on real images.

    Attributes:
        rows, columns: Slices of the area with some surroundings.
        regions: Pixels of the area and of its surroundings, as weights of sum 1 [h w, 2].
        pairs: The same for pixels with their right and lower neighbors: in the area, at its edge, and where plateaus
            are counted [2, h w, 3].
        color: Mean of the area's channels among real images [C].
        mean: Mean of the statistics among real images [S].
        axes: Matrix that decorrelates the statistics [S, S].
    """

    rows: slice
    columns: slice
    regions: Tensor
    pairs: Tensor
    color: Tensor
    mean: Tensor
    axes: Tensor

    @classmethod
    def of(cls, real: Tensor, area: Tensor, around: bool = True) -> Statistics:
        """Compute mean and axes from real images.

        Args:
            real: Real images [N, C, H, W], which fill [0, 1].
            area: Boolean mask [H, W] of the pixels.
            around: True to include the surroundings and the edge, a band of two pixels, since the place of an area may
                be a pixel off.
        """
        inside, edge, near = within(area)[:2][-1], grown(area, 1), grown(area, 1 + REACH)
        if not around:
            inside = edge = near = area
        rows, columns = slices_of(near)
        inside, edge, beyond = (x[rows, columns] for x in (inside, edge & ~inside, near & ~edge))
        central = inside & _central(area.shape)[rows, columns]
        flat = central if 2 * central.sum() > inside.sum() else inside
        parts = (inside, edge, flat)
        # to the neighbors at the right and below: down and across
        beside = [[x & F.pad(x[down:, right:], (0, right, 0, down)) for x in parts] for down, right in ((0, 1), (1, 0))]
        regions, *pairs = [_weights(x).to(real) for x in ([inside, beyond], *beside)]
        color = (real[..., rows, columns].flatten(2) @ regions[:, 0]).mean(0)
        plain = cls(rows, columns, regions, torch.stack(pairs), color, real.new_zeros(()), real.new_ones(()))
        values = plain.values(real).double()
        # smallest standard deviation of a statistic, since constant ones have rounding errors
        deviation = values.std(0).clamp_min(0.02)
        variances, axes = torch.linalg.eigh(((values - values.mean(0)) / deviation).T.cov())
        # added to variances along principal axes, whose mean is 1
        axes = axes / (variances.clamp_min(0) + 0.05).sqrt() / deviation[:, None]
        return replace(plain, mean=values.mean(0).to(real), axes=axes.to(real))

    def __call__(self, images: Tensor) -> Tensor:
        """Return the uncorrelated statistics [N, S] of images [N, C, H, W]."""
        return (self.values(images) - self.mean) @ self.axes

    def values(self, images: Tensor) -> Tensor:
        """Return the statistics [N, S] of images [N, C, H, W]."""
        x = images[..., self.rows, self.columns]
        to_right, down = F.pad(x[..., 1:] - x[..., :-1], (0, 1)), F.pad(x[..., 1:, :] - x[..., :-1, :], (0, 0, 0, 1))
        brightness = x.flatten(2) @ self.regions
        power, detail = (_energy(part, self.regions) for part in (x, x - averaged(x)))
        contrast = (power - brightness.square().mean(1)).clamp_min(0)
        steps = [_energy(part, pairs[:, :2]) for part, pairs in zip((to_right, down), self.pairs, strict=True)]
        same = [part.abs().lt(SAME).to(x) for part in (to_right, down)]
        plateaus = [_energy(part, pairs[:, 2:]) for part, pairs in zip(same, self.pairs, strict=True)]
        moved = (brightness[..., 0] - self.color).abs()
        energies = torch.cat([contrast, detail, *steps], 1) + LEAST
        logarithms = torch.cat([energies, torch.cat(plateaus, 1) + FEW], 1).log()
        return torch.cat([brightness.flatten(1), moved, logarithms], 1)


def _central(shape: Sequence[int]) -> Tensor:
    """Return a mask [H, W] of pixels away from the border, where shifts and padding repeat pixels."""
    out = torch.zeros(*shape, dtype=torch.bool)
    # pixels at the border of an image, at most an eighth of its side, without plateaus if most of
    # the area is elsewhere
    rows, columns = (slice(width, size - width) for size in shape for width in [min(4, size // 8)])
    out[rows, columns] = True
    return out


def _energy(x: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean of squares of images [N, C, h, w] by each of some weights [h w, R], over channels."""
    return (x.flatten(2).square() @ weights).mean(1)


def _weights(masks: Sequence[Tensor]) -> Tensor:
    """Return masks [h, w] as weights [h w, R] of sum 1, or 0 for empty masks."""
    weights = torch.stack([*masks]).flatten(1).float()
    return (weights / weights.sum(1, keepdim=True).clamp_min(1)).T.contiguous()
