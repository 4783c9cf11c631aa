# SPDX-License-Identifier: Apache-2.0
"""Generated images that repeat each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.distance import Distance, all_views
from genmonitor.functional.diagnosis.fit import CHANCE
from genmonitor.functional.diagnosis.images import SAMPLES, Images
from genmonitor.functional.permutation import LEVEL
from genmonitor.linalg.distances import squared_distances


@dataclass(frozen=True, eq=False)
class Repeats:
    """Images that repeat each other.

    Attributes:
        share: Share of generated images with a near twin, minus that of real ones.
        p: P-value that there are no more twins than among real images.
        of_distance: Part of the distance that vanishes if each is counted once.
        samples: Indices of generated images with a twin.
    """

    share: float
    p: float
    of_distance: float
    samples: tuple[int, ...]


def repeats(images: Images) -> Repeats:
    """Find generated images that repeat each other.

    Distances are between pixels, in units of the usual distance of each image, so that faded or similar images do not
    count as copies. They are measured in the directions in which generated images vary, since noise or detail that only
    real images have would increase the distances among these. A copy is nearer than half of what is usual among real
    images, and the share of copies among real images is subtracted.
    """
    n = min(len(images.fake), len(images.real))
    # float64 recognizes equal images; in float32 all distances of a repeated image are rounding
    fake, real = _where_generated_vary(*(x[:n].flatten(1).double() for x in (images.fake, images.real)))
    of_real = _from_nearest(squared_distances(real, real).fill_diagonal_(torch.inf))
    pairs = squared_distances(fake, fake).fill_diagonal_(torch.inf)
    of_fake = _from_nearest(pairs)
    # an image nearer to another than half of the usual distance counts as a copy
    limit = 0.5**2 * float(of_real.median())
    usual, twin = (of_real < limit).double().mean(), of_fake < limit
    found = twin.double().mean()
    pool = float(found + usual) / 2
    error = max((2 * pool * (1 - pool) / n) ** 0.5, 1 / n)
    p = float(torch.special.ndtr(-torch.as_tensor(float(found - usual) / error)))
    gone = 0.0
    if p <= LEVEL:
        earlier = (pairs < limit * pairs.median(1).values[:, None]).tril(-1).any(1)
        whole = torch.ones(images.real.shape[2:], dtype=torch.bool)
        distance = Distance.of(images.real, all_views(images.real, whole), n)
        fakes, reals = images.fake[:n], images.real[:n]
        once, all_of_them, reference = (distance.embedded(x) for x in (fakes[~earlier], fakes, reals))
        before = distance.between(all_of_them, reference)
        gone = 1 - distance.between(once, reference) / before if len(once[0]) > 1 and before > CHANCE else 0.0
    chosen = of_fake.where(twin, torch.inf).argsort()[: min(SAMPLES, int(twin.sum()))]
    return Repeats(float(found - usual), p, gone, tuple(images.chosen_fake[chosen.cpu()].tolist()))


def _where_generated_vary(fake: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Return coordinates of generated and real images in the principal directions of the generated ones."""
    center = fake.mean(0)
    fake, real = fake - center, real - center
    variances, left = torch.linalg.eigh(fake @ fake.T)
    explained = variances.flip(0).cumsum(0)
    # images are compared in the directions that hold 99 % of the variance of generated ones
    count = int((explained < 0.99 * explained[-1]).sum()) + 1
    if count == 1:  # a single repeated image, or one direction
        return fake, real
    directions = fake.T @ (left[:, -count:] / variances[-count:].sqrt())
    return fake @ directions, real @ directions


def _from_nearest(pairs: Tensor) -> Tensor:
    """Return the smallest of each row of squared distances, divided by the median of the row."""
    return pairs.amin(1) / pairs.median(1).values.clamp_min(torch.finfo(pairs.dtype).tiny)
