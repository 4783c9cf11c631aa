# SPDX-License-Identifier: Apache-2.0
"""Precision, recall, density and coverage: which samples lie among the nearest neighbors of the other side."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor._validation import check_at_least, check_vectors
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.distances import centered, rounding, squared_distances


def precision_recall_density_coverage(fake: Tensor, real: Tensor, *, k: int = 5) -> dict[str, Tensor]:
    """Fidelity and diversity by nearest neighbors; a sample's ball reaches to its k-th nearest neighbor on its side.

    Precision: fraction of fake samples in the ball of any real one. Recall: fraction of real samples in the ball of any
    fake one. Density: number of real balls that a fake sample lies in, over k, on average; it may exceed 1, since dense
    real samples count for more. Coverage: fraction of real samples whose ball contains a fake one. Balls are open: what
    lies as far away as the k-th neighbor, to within the rounding of float64, is outside.
    Values at different N, M or k must not be compared.

    Args:
        fake: features [N, D], N above k.
        real: features [M, D], M above k; it need not be N.
        k: number of neighbors.

    Returns:
        float64 scalars `precision`, `recall`, `density`, `coverage`; all but density in [0, 1].

    Raises:
        TypeError: if a side is not a tensor of real numbers.
        ValueError: if dimensions differ, values are not finite, or a side has k samples or fewer.

    References:
        Kynkäänniemi et al., "Improved Precision and Recall Metric for Assessing Generative Models", arXiv 1904.06991,
            for precision and recall.
        Naeem et al., "Reliable Fidelity and Diversity Metrics for Generative Models", arXiv 2002.09797, for density and
            coverage.

    Example:
        >>> real = torch.arange(8.0)[:, None]
        >>> found = precision_recall_density_coverage(real[:4] + 0.5, real, k=2)  # half of the range
        >>> {name: round(float(value), 3) for name, value in found.items()}
        {'precision': 1.0, 'recall': 0.75, 'density': 1.125, 'coverage': 0.625}
    """
    real = check_vectors("real", real)
    fake = check_vectors("fake", fake, real.shape[1])
    check_neighbors(k, fake=fake, real=real)
    return prdc_from_radii(fake, real, neighbor_radii(fake, k), neighbor_radii(real, k), k)


def neighbor_radii(x: Tensor, k: int) -> Tensor:
    """Squared distance of each sample to its k-th nearest neighbor.

    Args:
        x: samples [N, D], N above k.
        k: number of neighbors.

    Returns:
        [N], float64; 0 where k others equal the sample. From the differences of the two: exact for whole numbers.
    """
    wide = x.double()
    near, _ = centered(wide, wide)
    nearest = near.new_full((len(x), k), torch.inf)
    neighbors = torch.zeros_like(nearest, dtype=torch.long)
    for start, stop in row_blocks(len(x), 3 * 8):
        distances = squared_distances(near[start:stop], near[start:])
        distances[:, : stop - start].fill_diagonal_(torch.inf)
        _take_nearer(nearest[start:stop], neighbors[start:stop], distances, start)
        _take_nearer(nearest[stop:], neighbors[stop:], distances[:, stop - start :].T, start)
    return (wide - wide[neighbors[:, -1]]).square().sum(1)


def _take_nearer(nearest: Tensor, neighbors: Tensor, distances: Tensor, first: int) -> None:
    """Update the k nearest neighbors [N, k] of N samples by their distances [N, M] to others, numbered from `first`."""
    k = nearest.shape[1]
    found = distances.topk(min(k, distances.shape[1]), largest=False)
    values, order = torch.cat([nearest, found.values], 1).topk(k, largest=False)
    nearest.copy_(values)
    neighbors.copy_(torch.cat([neighbors, found.indices + first], 1).gather(1, order))


def prdc_from_radii(fake: Tensor, real: Tensor, fake_radii: Tensor, real_radii: Tensor, k: int) -> dict[str, Tensor]:
    """Compute the four values from the samples and their `neighbor_radii`, a block of pairs at a time."""
    x, y = centered(fake.double(), real.double())
    margin = rounding(x.shape[1])
    fake_radii, real_radii = fake_radii * (1 - margin), real_radii * (1 - margin)
    precise = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    recalled = inside = covered = torch.zeros((), dtype=torch.float64, device=x.device)
    for start, stop in row_blocks(len(y), 3 * 8, columns=len(x)):
        distances = squared_distances(y[start:stop], x, margin=margin)
        within_real = distances < real_radii[start:stop, None]
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


def check_neighbors(k: int, **sides: Tensor) -> None:
    """Refuse sides, by name, in which a sample has no k neighbors."""
    check_at_least("k", k, 1)
    for name, side in sides.items():
        if len(side) <= k:
            raise ValueError(
                f"Expected more than `k`={k} {name} samples, but got {len(side)}. Add samples or lower `k`."
            )
