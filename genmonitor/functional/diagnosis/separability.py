# SPDX-License-Identifier: Apache-2.0
"""Accuracy of a classifier of generated and weighted real images, which can veto "wrong proportions".

Weights of real images imitate nearly any fault a little. If only proportions are wrong, a classifier of details fitted
on one half of the images is blind on the other. If weights imitate a fault, it sees the fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.diagnosis.readings import Reading, read, usable_readings
from genmonitor.linalg.chunking import in_cache
from genmonitor.linalg.whitening import Whitening


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
