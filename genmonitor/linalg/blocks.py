# SPDX-License-Identifier: Apache-2.0
"""Large matrices in blocks of rows, kept as far as they fit in memory and made anew where they do not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from genmonitor.linalg.chunking import row_blocks

BLOCK_ROWS = 512
"""Rows read at a time: few enough to be in the processor's cache for a second look."""


def gram_budget(device: torch.device) -> int:
    """Return the bytes that a matrix read in every step may take: a third of the memory, 4 GiB where that is unknown.

    What is beyond is computed anew each time, block by block.
    """
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory) // 3
    known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else [3 * 2**32]
    limit = Path("/sys/fs/cgroup/memory.max")  # a container's
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        known.append(int(text))
    return min(known) // 3


class Blocks:
    """Blocks of rows of a large matrix: the first ones kept, as many as fit, the others made each time they are read.

    Args:
        spans: first and last row (not included) of each block.
        make: makes the block of such a span.
    """

    def __init__(self, spans: Sequence[tuple[int, int]], make: Callable[[int, int], Tensor]) -> None:
        self.spans = spans
        self._make = make
        self._kept: list[Tensor] = []
        kept = 0
        for span in spans:
            block = make(*span)
            kept += block.numel() * block.element_size()
            if kept > gram_budget(block.device):
                break
            self._kept.append(block)

    @property
    def all_kept(self) -> bool:
        """Whether no block is made anew."""
        return len(self._kept) == len(self.spans)

    def __iter__(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yield the first row, the row after the last, and these rows."""
        for index, (start, stop) in enumerate(self.spans):
            block = self._kept[index] if index < len(self._kept) else self._make(start, stop)
            for a in range(start, stop, BLOCK_ROWS):
                b = min(a + BLOCK_ROWS, stop)
                yield a, b, block[a - start : b - start]


class SymmetricBlocks:
    """A symmetric matrix [N, N] that does not fit in a cache, of which only the upper triangle is computed and read.

    Args:
        size: N.
        like: a tensor with the dtype and device of the entries.
        make: from two rows a, b to the rows from a up to b (not included), from column a on.
    """

    def __init__(self, size: int, like: Tensor, make: Callable[[int, int], Tensor]) -> None:
        self._size, self._like = size, like
        self._blocks = Blocks(list(row_blocks(size, 4 * like.element_size())), make)

    @property
    def all_kept(self) -> bool:
        """Whether no block is made anew."""
        return self._blocks.all_kept

    def product(self, v: Tensor) -> Tensor:
        """Return the product with v [N, k], float64, rounded to the dtype of the entries."""
        narrow, out = v.to(self._like), torch.zeros_like(v)
        for a, b, right in self._rows():
            out[a:b] += right @ narrow[a:]
            out[b:] += right[:, b - a :].T @ narrow[a:b]
        return out

    def moments(self, weights: Tensor) -> tuple[float, float]:
        """Return Σ λ and Σ λ² over the eigenvalues of diag(weights) times the matrix, from its entries.

        Args:
            weights: [N, 1], float64.
        """
        first, second = 0.0, 0.0
        for a, b, right in self._rows():
            right = right.double()
            first += float(weights[a:b, 0] @ right.diagonal())
            by_column = weights[a:b].T @ right.square()
            second += float(by_column @ weights[a:] + by_column[:, b - a :] @ weights[b:])
        return first, second

    def whole(self) -> Tensor:
        """Return the matrix [N, N]."""
        out = self._like.new_empty(self._size, self._size)
        for a, b, right in self._rows():
            out[a:b, a:] = right
            out[b:, a:b] = right[:, b - a :].T
        return out

    def _rows(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yield some rows at a time, from their diagonal on."""
        for a, b, block in self._blocks:
            yield a, b, block[:, block.shape[1] + a - self._size :]
