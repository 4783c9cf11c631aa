# SPDX-License-Identifier: Apache-2.0
"""Distance of generated images from real ones in an area, in standard deviations of chance.

It is by pixels, by whitened pixels and, in an area, by statistics of each image. Photographs differ so much in contrast
that the distance of their pixels hardly changes if all have a fifth less. The detail of an area relative to its
surroundings varies far less, and so does the step at its edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.diagnosis.kinds.shape import averaged
from genmonitor.functional.discrepancy_map import grown, within
from genmonitor.linalg.distances import centered, squared_norms, symmetric_product
from genmonitor.linalg.precision import full_precision
from genmonitor.linalg.whitening import REACH, Whitening, slices_of

GAMMAS = (0.5, 2.0, 8.0)
"""Gammas in units of the inverse mean squared distance of real images, each four times the one before."""

Values = Callable[[Tensor], Tensor]
"""Function from images [N, C, H, W] to the values to compare [N, D]."""


@dataclass(frozen=True, eq=False)
class View:
    """A view of images: their values, the center of the values, and the gammas and weights of the kernels."""

    values: Values
    shift: Tensor
    gamma: float
    weights: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Distance:
    """Squared maximum mean discrepancy without bias by one kernel, k = Σ k_g / σ_g over views and gammas.

    σ_g is the standard deviation of MMD² by k_g between two sets of `unit` real images each. Gammas, weights and views
    come from given real images, so distances from the same set can be divided: one minus the ratio of two is the part
    explained.
    """

    views: tuple[View, ...]

    @classmethod
    def of(cls, real: Tensor, values: Sequence[Values], unit: int) -> Distance:
        """Fix gammas and weights from real images.

        Args:
            real: Real images [N, C, H, W], N at least 4.
            values: Function that returns the values of each view, such as `all_views`.
            unit: Number of images a side for which a distance of 1 is the standard deviation.
        """
        with full_precision():
            return cls(tuple(_view(real, some, unit)[0] for some in values))

    def embedded(self, images: Tensor) -> list[Tensor]:
        """Return the values of the area in each view [N, D], for `gram`."""
        with full_precision():
            return [view.values(images) - view.shift for view in self.views]

    def gram(self, x: Sequence[Tensor], y: Sequence[Tensor]) -> Tensor:
        """Return k of all pairs of embedded images, [..., N, M], for each set of N images."""
        total = x[0].new_zeros(*x[0].shape[:-1], y[0].shape[-2])
        varying = [of_view for of_view in zip(self.views, x, y, strict=True) if of_view[0].gamma]
        with full_precision():
            for view, a, b in varying:
                for weight, gram in zip(view.weights, _gaussians(a, b, view.gamma), strict=True):
                    total.add_(gram, alpha=weight)
        return total

    def between(self, x: Sequence[Tensor], y: Sequence[Tensor]) -> float:
        """Return the distance of two sets of embedded images."""
        return float(distance_of(self.gram(x, x), self.gram(x, y), self.gram(y, y)))


def distance_of(xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
    """Return MMD² without bias from Gram matrices [..., N, N], [..., N, M], [M, M]: float64 [...]."""
    return mean_of_pairs(xx) + mean_of_pairs(yy) - 2 * xy.mean((-2, -1), dtype=torch.float64)


def mean_of_pairs(gram: Tensor) -> Tensor:
    """Return the mean of a kernel over pairs of different samples, float64 [...], from Gram matrices [..., N, N]."""
    n, same = gram.shape[-1], gram.diagonal(dim1=-2, dim2=-1)
    return (gram.sum((-2, -1), dtype=torch.float64) - same.sum(-1, dtype=torch.float64)) / (n * (n - 1))


def pixel_views(real: Tensor, area: Tensor) -> list[Values]:
    """Return structure, the pixels of an area, and texture, the whitened pixels, if there is more than one pixel.

    The surroundings of the area do not affect its texture.

    Args:
        real: Images [N, C, H, W] that determine the whitening.
        area: Boolean mask [H, W] of the pixels.
    """
    rows, columns = slices_of(area)
    inside = area[rows, columns].to(real.device)
    if inside.numel() == 1:
        return [_Pixels(rows, columns, inside, None)]
    return [_Pixels(rows, columns, inside, x) for x in (None, Whitening.of(real[..., rows, columns]))]


def all_views(real: Tensor, area: Tensor, around: bool = False) -> list[Values]:
    """Return structure, texture and, for less than the whole image, statistics of an area.

    For the whole image, statistics would outweigh the other views. Samples of a trained generator are never quite flat
    where real images are. Statistics see this, which no person sees, before a pattern or a missing class.

    Args:
        real: Images [N, C, H, W] that determine the whitening.
        area: Boolean mask [H, W] of the pixels.
        around: True if the surroundings show the fault too, and the place may be a pixel off. Statistics then include
            surroundings and edge; structure and texture leave out the outermost pixels.
    """
    views = pixel_views(real, within(area)[:2][-1] if around else area)
    return views if len(views) == 1 or bool(area.all()) else [*views, Statistics.of(real, area, around)]


@dataclass(frozen=True, eq=False)
class _Pixels:
    """The pixels of an area, bool [h, w] within some rows and columns, plain or whitened."""

    rows: slice
    columns: slice
    inside: Tensor
    whitening: Whitening | None

    def __call__(self, images: Tensor) -> Tensor:
        seen = images[..., self.rows, self.columns]
        if bool(self.inside.all()):
            return (seen if self.whitening is None else self.whitening(seen)).flatten(1)
        return (seen if self.whitening is None else self.whitening(seen, self.inside))[:, :, self.inside].flatten(1)


def own_gram(images: Tensor, values: Sequence[Values], unit: int) -> Tensor:
    """Return k of all pairs of the images [N, C, H, W] that fix gammas and weights, like `Distance.of` and `gram`."""
    with full_precision():
        return torch.stack([_view(images, compared, unit)[1] for compared in values]).double().sum(0)


def _view(real: Tensor, compared: Values, unit: int) -> tuple[View, Tensor]:
    """Make a view from real images, and the weighted sum of its kernels of all pairs of them [N, N]."""
    values = compared(real)
    near = centered(values, values)[0]
    scale = float(2 * squared_norms(near).double().sum() / (len(near) - 1))
    weights, total = list[float](), near.new_zeros(len(near), len(near))
    for gram in _gaussians(near, near, 1 / scale if scale else 0.0):
        # twice the mean square of the centered kernel over pairs, times (1/unit + 1/unit)²
        square = _mean_square(gram) if scale else 0.0
        weights.append(unit / (8 * square) ** 0.5 if square > 0 else 0.0)
        total.add_(gram, alpha=weights[-1])
    return View(compared, values.mean(0), 1 / scale if scale else 0.0, tuple(weights)), total


def _gaussians(x: Tensor, y: Tensor, gamma: float) -> Iterator[Tensor]:
    """Yield the Gram matrix [..., N, M] of each Gaussian, computed in place as the fourth power of the one before."""
    squares = squared_norms(x)
    others = squares if x is y else squared_norms(y)
    product = symmetric_product(x) if x is y and x.ndim == 2 else x @ y.mT
    distances = product.mul_(-2).add_(others[..., None, :]).add_(squares[..., None]).clamp_min_(0)
    gram = distances.mul_(-GAMMAS[0] * gamma).exp_()
    yield gram
    for _ in GAMMAS[1:]:
        yield gram.square_().square_()


def _mean_square(gram: Tensor) -> float:
    """Estimate the mean square of a centered kernel over pairs without bias (Székely and Rizzo's U-centering)."""
    n = len(gram)
    gram = gram.to(torch.float64, copy=True).fill_diagonal_(0)
    rows = gram.sum(0)
    total = rows.sum()
    gram.sub_((rows[:, None] + rows) / (n - 2)).add_(total / ((n - 1) * (n - 2))).fill_diagonal_(0)
    return float(torch.linalg.vector_norm(gram).square() / (n * (n - 3)))


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
        # the deviation of a constant statistic is rounding, so that of any counts as 0.02 at least
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
        # neighbors that differ by less than a thousandth of the range count as equal
        same = [part.abs().lt(1e-3).to(x) for part in (to_right, down)]
        plateaus = [_energy(part, pairs[:, 2:]) for part, pairs in zip(same, self.pairs, strict=True)]
        moved = (brightness[..., 0] - self.color).abs()
        # energies far below this addition, in squares of the range, count as none
        energies = torch.cat([contrast, detail, *steps], 1) + 1e-4
        # likewise parts of the pixels
        logarithms = torch.cat([energies, torch.cat(plateaus, 1) + 1e-2], 1).log()
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
