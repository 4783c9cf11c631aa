# SPDX-License-Identifier: Apache-2.0
"""Sums in float64 of large float32 matrices."""

from __future__ import annotations

import torch
from torch import Tensor

AT_ONCE = 2**20
"""Bytes of a matrix that are converted at a time: their float64 copies stay in the cache."""


def float64_sum(x: Tensor, dim: int | None = None) -> Tensor:
    """Sum in float64, converting a few rows at a time: PyTorch would copy all of them first, on the CPU.

    Args:
        x: [N, ...].
        dim: as for `torch.sum`, counted from the front; None for all.

    Returns:
        float64.

    Example:
        >>> float64_sum(torch.ones(2, 3)), float64_sum(torch.ones(2, 3), 0)
        (tensor(6., dtype=torch.float64), tensor([2., 2., 2.], dtype=torch.float64))
    """
    rows = max(1, AT_ONCE * len(x) // max(1, x.numel() * x.element_size()))
    if x.dtype == torch.float64 or x.device.type != "cpu" or rows >= len(x):
        return x.sum(dim, dtype=torch.float64)
    parts = [part.sum(dim, dtype=torch.float64) for part in x.split(rows)]
    return torch.cat(parts) if dim else torch.stack(parts).sum(0)
