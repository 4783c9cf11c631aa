# SPDX-License-Identifier: Apache-2.0
"""Share of the distance due to correct images in wrong proportions, and the real images that are too rare or frequent.

Real images get the weights that bring them closest to the generated ones. This is kernel mean matching (Huang et al.,
"Correcting Sample Selection Bias by Unlabeled Data", 2006; Gretton et al., "Covariate Shift by Kernel Mean Matching",
2009). It answers the question of Kulinski and Inouye (arXiv 2210.10275) with reweighting as the map. Weights are fitted
by wide kernels of pixels and judged by all kernels of both views on other generated images. Narrow kernels would also
explain 15 to 35 % of a distance unrelated to proportions, since some real images always look slightly more like
generated ones than others. Wide kernels fit properties common to many images, such as a class.

Weights of real images imitate nearly any fault a little. If only proportions are wrong, a classifier of details fitted
on one half of the images is blind on the other. If weights imitate a fault, it sees the fault, see `separability`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.diagnosis.distance import Distance, mean_of_pairs
from genmonitor.functional.diagnosis.readings import Reading, read, usable_readings
from genmonitor.linalg.chunking import in_cache
from genmonitor.linalg.whitening import Whitening

RIDGE = 0.03
"""Fraction added to the diagonal, so that many images have weights instead of a few."""


def match(distance: Distance, real: list[Tensor], fitted: list[Tensor], judged: list[Tensor]) -> tuple[float, Tensor]:
    """Weight real images so that they come closest to some generated ones, and judge the weights on others.

    Args:
        distance: Distance of the area.
        real: Embedded real images.
        fitted: Embedded generated images to fit weights to.
        judged: Embedded generated images to judge the weights on.

    Returns:
        The part of the distance of the judged images that the weights remove, and the weights of the real images [N].
        These have mean 1 and are below 1 for images that are too rare among generated ones.
    """
    wide = _wide_kernels(distance)
    weights = matching_weights(wide.gram(real, real), wide.gram(real, fitted).mean(1, dtype=torch.float64))
    gram = distance.gram(real, real).double().fill_diagonal_(0)
    across = distance.gram(real, judged).mean(1, dtype=torch.float64)
    of_fake = float(mean_of_pairs(distance.gram(judged, judged)))

    def weighted(w: Tensor) -> float:
        return float(w @ gram @ w / (1 - w.square().sum())) - 2 * float(w @ across) + of_fake

    before = weighted(torch.full_like(weights, 1 / len(weights)))
    return 1 - weighted(weights / len(weights)) / before if before else 0.0, weights


def matching_weights(gram: Tensor, across: Tensor) -> Tensor:
    """Return the weights w >= 0 of mean 1 that minimize wᵀ K w - 2 wᵀ k, by multiplicative updates.

    Args:
        gram: Kernel of pairs of real samples K [N, N], nowhere negative.
        across: Mean kernel k of each real sample with the other samples [N].

    Example:
        >>> gram = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> matching_weights(gram, torch.tensor([0.9, 0.1]))
        tensor([1.8000, 0.2000], dtype=torch.float64)
    """
    gram, across = gram.double(), across.double()
    ridge = RIDGE * gram.diagonal().mean()
    w = torch.full_like(across, 1 / len(across))
    # further updates would change shares by less than a percent
    for _ in range(300):
        w = w * across / (gram @ w + ridge * w).clamp_min(torch.finfo(w.dtype).tiny)
        w = w / w.sum()
    return len(w) * w


def _wide_kernels(distance: Distance) -> Distance:
    pixels, *others = distance.views
    # weights are fitted by the two widest kernels of pixels
    weights = tuple(weight if number < 2 else 0.0 for number, weight in enumerate(pixels.weights))
    silent = [replace(view, gamma=0.0) for view in others]
    return replace(distance, views=(replace(pixels, weights=weights), *silent))


class Weighted(NamedTuple):
    """Half of the images: generated and real ones [N, C, H, W], and the weights of the real ones [N]."""

    fake: Tensor
    real: Tensor
    weights: Tensor


class _Features(NamedTuple):
    """Features of an image for the classifier."""

    whitening: Whitening
    filters: Tensor
    level: Tensor
    readings: Sequence[Reading]

    @classmethod
    def of(cls, real: Tensor, readings: Sequence[Reading], seed: int) -> _Features:
        side = min(5, *real.shape[2:])
        filters = torch.randn(64, real.shape[1], side, side, generator=torch.Generator().manual_seed(seed))
        return cls(Whitening.of(real), filters.to(real), real.mean((0, 2, 3), keepdim=True), readings)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the features, float64 [N, F] on the CPU."""
        out = [read(self.readings, images)] if self.readings else []
        return torch.cat([*out, torch.cat([*self._responses(images)])], 1)

    def _responses(self, images: Tensor) -> Iterator[Tensor]:
        """Yield mean and largest responses to whitened pixels and mean responses to plain ones, in batches."""
        for rows in in_cache(len(images), len(self.filters) * images[0, 0].numel() * images.element_size()):
            fine = F.conv2d(self.whitening(images[rows]), self.filters).abs().flatten(2)
            plain = F.conv2d(images[rows] - self.level, self.filters / self.filters[0].numel() ** 0.5)
            # added to responses to plain pixels before those below 0 are cut, so that their mean depends on more than
            # means
            plain = (plain + 0.1).relu().flatten(2)
            yield torch.cat([fine.mean(2), fine.amax(2), plain.mean(2)], 1).double().cpu()


def separability(fitted: Weighted, judged: Weighted, readings: Sequence[Reading], seed: int) -> float:
    """Return the area under the ROC curve of a classifier on unseen images: 0.5 if it is blind.

    The classifier is a ridge regression on readings and on the responses to random filters of 5×5 pixels.

    Args:
        fitted: Half of the images to fit the classifier on.
        judged: Half of the images to judge it on.
        readings: Readings of images; may be empty.
        seed: Seed of the filters.
    """
    single = [reading for reading in readings if not reading.of_set]
    features = _Features.of(fitted.real, usable_readings(single, fitted.real), seed)
    fake, real = features(fitted.fake), features(fitted.real)
    x = torch.cat([fake, real])
    mean, deviation = x.mean(0), x.std(0)
    deviation = torch.where(deviation > 1e-9, deviation, 1.0)
    x = torch.cat([(x - mean) / deviation, torch.ones(len(x), 1)], 1)
    y = torch.tensor([1.0] * len(fake) + [-1.0] * len(real)).double()
    counts = torch.cat([torch.full((len(fake),), len(real) / len(fake)), _normalized(fitted.weights)])
    moments = (x * counts[:, None]).T @ x / len(x)
    # added to the variances of responses, which are 1
    moments.diagonal().add_(0.01)
    direction = torch.linalg.solve(moments, (x * counts[:, None]).T @ y / len(x))[:-1] / deviation
    scores = [features(images) @ direction for images in (judged.fake, judged.real)]
    higher = (scores[0][:, None] > scores[1]).double() + (scores[0][:, None] == scores[1]).double() / 2
    return float((higher @ _normalized(judged.weights)).mean() / len(judged.real))


def _normalized(weights: Tensor) -> Tensor:
    return (weights / weights.mean().clamp_min(1e-12)).double().cpu()
