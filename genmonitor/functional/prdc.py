# SPDX-License-Identifier: Apache-2.0
"""Precision, recall, density and coverage: who lies among the nearest neighbors of the other side."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor._validation import check_features
from genmonitor._validation.arguments import check_neighbors
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.distances import centered, squared_distances

SAME = 1e-14
"""Squared distances up to so much of the largest squared norm are rounding (in float64): the samples are the same."""


def precision_recall_density_coverage(fake: Tensor, real: Tensor, *, k: int = 5) -> dict[str, Tensor]:
    """Fidelity and variety by nearest neighbors; a sample's ball reaches to its k-th nearest neighbor on its side.

    Precision: share of fake samples in the ball of any real one. Recall: share of real samples in the ball of any fake
    one. Density: real balls that a fake sample lies in, over k, on average; real samples close together count for more,
    so it may exceed 1. Coverage: share of real samples whose ball has a fake one in it. Balls are open. Values at
    different N, M or k must not be compared.

    Args:
        fake: features [N, D], N above k.
        real: features [M, D], M above k; it need not be N.
        k: neighbors.

    Returns:
        float64 scalars `precision`, `recall`, `density`, `coverage`; all but density in [0, 1].

    Raises:
        TypeError: if a side is no tensor of real numbers.
        ValueError: if dimensions differ, values are not finite, or a side has not more than k samples.

    Source:
        Kynkäänniemi et al. 2019 (precision, recall); Naeem et al. 2020 (density, coverage).

    Example:
        >>> real = torch.arange(8.0)[:, None]
        >>> found = precision_recall_density_coverage(real[:4] + 0.5, real, k=2)  # half of what there is
        >>> {name: round(float(value), 3) for name, value in found.items()}
        {'precision': 1.0, 'recall': 0.75, 'density': 1.125, 'coverage': 0.625}
    """
    real = check_features("real", real)
    fake = check_features("fake", fake, real.shape[1])
    check_neighbors(k, fake, real)
    return prdc_from_radii(fake, real, neighbor_radii(fake, k), neighbor_radii(real, k), k)


def neighbor_radii(x: Tensor, k: int) -> Tensor:
    """Squared distance of each sample to its k-th nearest other one.

    Args:
        x: samples [N, D], N above k.
        k: neighbors.

    Returns:
        [N], float64; 0 where k others are the same as the sample.
    """
    x, _ = centered(x.double(), x.double())
    radii = []
    for start, stop in row_blocks(len(x), 3 * 8, columns=len(x)):
        distances = _distances(x[start:stop], x)
        distances[:, start:stop].fill_diagonal_(torch.inf)
        radii.append(distances.topk(k, largest=False).values[:, -1])
    return torch.cat(radii)


def prdc_from_radii(fake: Tensor, real: Tensor, fake_radii: Tensor, real_radii: Tensor, k: int) -> dict[str, Tensor]:
    """Put the four values together from the samples and their `neighbor_radii`, a block of pairs at a time."""
    x, y = centered(fake.double(), real.double())
    precise = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    recalled = inside = covered = torch.zeros((), dtype=torch.float64, device=x.device)
    for start, stop in row_blocks(len(y), 3 * 8, columns=len(x)):
        distances, radii = _distances(y[start:stop], x), real_radii[start:stop, None]
        within_real = distances < radii
        precise |= within_real.any(0)
        inside = inside + within_real.sum()
        covered = covered + within_real.any(1).sum()
        recalled = recalled + (distances < fake_radii).any(1).sum()
    return {
        "precision": precise.double().mean(),
        "recall": recalled / len(y),
        "density": inside / (k * len(x)),
        "coverage": covered / len(y),
    }


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """Return squared distances, exactly 0 between samples that are the same, since the balls of copies are empty."""
    distances = squared_distances(x, y)
    same = SAME * torch.linalg.vecdot(y, y).max()
    return distances.masked_fill_(distances <= same, 0)
