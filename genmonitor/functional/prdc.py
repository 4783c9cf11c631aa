# SPDX-License-Identifier: Apache-2.0
"""Precision, recall, density and coverage, by samples among the nearest neighbors of the other side."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor._validation import check_vectors
from genmonitor.linalg.distances import check_neighbors, distance_blocks, neighbor_radii, rounding


def precision_recall_density_coverage(fake: Tensor, real: Tensor, *, k: int = 5) -> dict[str, Tensor]:
    """Fidelity and diversity by nearest neighbors. A sample's ball reaches to its k-th nearest neighbor on its side.

    Precision: fraction of fake samples in the ball of any real one. Recall: fraction of real samples in the ball of any
    fake one. Density: number of real balls that a fake sample lies in, over k, on average; it may exceed 1, since dense
    real samples count for more. Coverage: fraction of real samples whose ball contains a fake one. Balls are open:
    samples as far away as the k-th neighbor, to within the rounding of float64, are outside. Values at different N, M
    or k are not comparable.

    Args:
        fake: Features [N, D], N above k.
        real: Features [M, D], M above k; M need not be N.
        k: Number of neighbors.

    Returns:
        Float64 scalars `precision`, `recall`, `density`, `coverage`; all but density in [0, 1].

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If dimensions differ, values are not finite, or a side has k samples or fewer.

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
    margin = rounding(fake.shape[1])
    fake_radii, real_radii = (neighbor_radii(side, k) * (1 - margin) for side in (fake, real))
    precise = torch.zeros(len(fake), dtype=torch.bool, device=fake.device)
    recalled = inside = covered = torch.zeros((), dtype=torch.float64, device=fake.device)
    for rows, distances in distance_blocks(real, fake, margin):
        within_real = distances < real_radii[rows, None]
        precise |= within_real.any(0)
        inside = inside + within_real.sum()
        covered = covered + within_real.any(1).sum()
        recalled = recalled + (distances < fake_radii).any(1).sum()
    return {
        "precision": precise.double().mean(),
        "recall": recalled / len(real),
        "density": inside / (k * len(fake)),
        "coverage": covered / len(real),
    }
