# SPDX-License-Identifier: Apache-2.0
"""Squared distances and products of samples with themselves, within the memory budget."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor.linalg.chunking import row_blocks, rows_in_cache


def centered(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Shift both sets by one vector, the mean of `y`: distances stay, and float32 survives data at 100 ± 0.01.

    Args:
        x: samples [N, D].
        y: samples [M, D].

    Returns:
        Both sets, shifted.
    """
    shift = y.detach().mean(0)
    return x - shift, y - shift


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared Euclidean distances through one matrix product, never negative.

    Rounding is relative to the squared norms, so shift the data near zero first (`centered`).

    Args:
        x: samples [N, D].
        y: samples [M, D].

    Returns:
        Distances [N, M].

    Example:
        >>> squared_distances(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[25.]])
    """
    squares = squared_norms(x)[:, None] + squared_norms(y)
    return torch.addmm(squares, x, y.T, alpha=-2).clamp_min(0)


def symmetric_product(x: Tensor) -> Tensor:
    """Return x xᵀ, multiplying the upper triangle only.

    Args:
        x: [N, D].

    Returns:
        [N, N].
    """
    out = x.new_empty(len(x), len(x))
    for start, stop in row_blocks(len(x), x.element_size()):
        out[start:stop, start:] = x[start:stop] @ x[start:].T
        out[stop:, start:stop] = out[start:stop, stop:].T
    return out


def squared_norms(x: Tensor) -> Tensor:
    """Return the squared norm of each row [N], a few rows at a time so that they stay in the cache."""
    return torch.cat([torch.linalg.vecdot(some, some) for some in x.split(rows_in_cache(x))])
