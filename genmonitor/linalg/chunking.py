# SPDX-License-Identifier: Apache-2.0
"""Cutting work into pieces that stay within a memory budget, or within a processor's cache; float64 sums by these."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

AT_ONCE = 2**20
"""Bytes of a matrix that `float64_sum` converts at a time: their float64 copies stay in the cache."""

CACHE = 2**22
"""Bytes that stay in a processor's cache between two passes: 4 MiB."""

MEMORY_BUDGET = 2**29
"""Bytes that a temporary may take: 512 MiB. Larger work is done a block of rows at a time."""


def row_blocks(rows: int, bytes_per_entry: int, columns: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut the rows of a matrix into blocks within the memory budget; of a symmetric one sixteen, of 256 rows at least.

    Each block costs a few products beyond the upper triangle, and products of fewer rows are slow.

    Args:
        rows: rows of the matrix.
        bytes_per_entry: bytes held at once per entry of a block.
        columns: columns of the matrix; None for a symmetric one, of which only the upper triangle is wanted.

    Yields:
        (start, stop) of each block.

    Example:
        >>> list(row_blocks(5, bytes_per_entry=4, columns=7))
        [(0, 5)]
    """
    within_budget = max(1, MEMORY_BUDGET // (bytes_per_entry * (columns or rows)))
    step = min(within_budget, max(1, rows)) if columns else min(within_budget, max(256, -(-rows // 16)))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def column_blocks(columns: Tensor, rows: int) -> tuple[Tensor, ...]:
    """Cut columns so that what is made of so many rows of them, three copies in float64, stays in the memory budget.

    Example:
        >>> [len(some) for some in column_blocks(torch.arange(10_000), rows=4000)]
        [5592, 4408]
    """
    return columns.split(max(1, MEMORY_BUDGET // (3 * 8 * max(1, rows))))


def in_cache(count: int, bytes_each: int, cache: int = CACHE) -> Iterator[slice]:
    """Cut things of so many bytes each into as many at a time as stay in the cache.

    Example:
        >>> list(in_cache(5, bytes_each=4, cache=8))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    step = max(1, cache // bytes_each)
    return (slice(start, start + step) for start in range(0, count, step))


def rows_in_cache(matrix: Tensor) -> int:
    """Return how many rows of a matrix stay in the cache."""
    return max(1, CACHE // (matrix.element_size() * max(1, matrix.shape[1])))


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
