# SPDX-License-Identifier: Apache-2.0
"""Nearest neighbors, a block of pairs at a time, without a matrix of all distances."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.distances import centered, squared_distances


def distance_blocks(x: Tensor, y: Tensor, margin: float = 0.0) -> Iterator[tuple[slice, Tensor]]:
    """Yield rows of x with their squared distances to all of y, in blocks within the memory budget of 512 MiB.

    Args:
        x: Samples [N, D].
        y: Samples [M, D].
        margin: Same as in `squared_distances`.

    Yields:
        Rows, and distances [rows, M], float64.
    """
    wide = y.double()
    x, y = centered(wide if x is y else x.double(), wide)
    for start, stop in row_blocks(len(x), 3 * 8, columns=len(y)):
        yield slice(start, stop), squared_distances(x[start:stop], y, margin=margin)


def knn(x: Tensor, y: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the squared distances of x [N, D] to the k nearest of y [M, D], and their indices.

    Args:
        x: Samples; if they are `y` itself, no sample is its own neighbor.
        y: Samples, at least k, or k + 1 if they are `x`.
        k: Number of neighbors.

    Returns:
        Squared distances [N, k], float64, the nearest first; indices [N, k].

    Example:
        >>> distances, indices = knn(torch.tensor([[0.0], [2.9]]), torch.tensor([[0.0], [1.0], [3.0]]), 1)
        >>> distances.flatten().tolist()[0], indices.flatten().tolist()
        (0.0, [0, 2])
    """
    distances, indices = [], []
    for rows, block in distance_blocks(x, y):
        if x is y:
            block[:, rows].fill_diagonal_(torch.inf)
        found = block.topk(k, largest=False)
        distances.append(found.values)
        indices.append(found.indices)
    return torch.cat(distances), torch.cat(indices)


def neighbor_radii(x: Tensor, k: int) -> Tensor:
    """Squared distance of each sample to its k-th nearest neighbor.

    Args:
        x: Samples [N, D], N above k.
        k: Number of neighbors.

    Returns:
        Squared distances [N], float64, computed from differences and thus exact for integers; 0 if k others equal the
        sample.
    """
    wide = x.double()
    _, neighbors = knn(wide, wide, k)
    return (wide - wide[neighbors[:, -1]]).square().sum(1)


def check_neighbors(k: int, **sides: Tensor) -> None:
    """Refuse sides, by name, with too few samples for k neighbors."""
    check_at_least("k", k, 1)
    for name, side in sides.items():
        if len(side) <= k:
            raise ValueError(
                f"Expected more than `k`={k} {name} samples, but got {len(side)}. Add samples or lower `k`."
            )
