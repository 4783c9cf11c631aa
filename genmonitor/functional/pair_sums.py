# SPDX-License-Identifier: Apache-2.0
"""Sums over pairs of samples, as many rows of a matrix of kernels at a time as fit in cache and memory budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor.linalg import chunking
from genmonitor.linalg.distances import squared_norms

Spans = Sequence[tuple[int, int]]
STRIP = 2**19
"""Bytes of the rows of a matrix that a CPU processes at a time, which stay in its cache. A GPU uses the memory budget
instead, since starting a small step takes longer than the step.
"""
NEAR = 0.1
"""Exponent of most pairs below which exp(-exponent) - 1 keeps digits that exp(-exponent) loses."""


class PairSums(NamedTuple):
    """Sums of kernels minus one over the pairs of two sets, for G groups and K kernels; all float64.

    Attributes:
        blocks: Sums over the pairs of each two blocks [G, K, A, B]; the last block of a side may be smaller.
        rows: Sums of the mixture of the kernels over the columns [G, N].
        columns: Sums of the mixture over the rows [G, M].
        squares: Sums of the squared mixture over all pairs [G].
        own: Sums of the kernel with one gamma for all groups, over all pairs [G]; None without such a kernel.
    """

    blocks: Tensor
    rows: Tensor
    columns: Tensor
    squares: Tensor
    own: Tensor | None = None

    @property
    def totals(self) -> Tensor:
        """Sums over all pairs [G, K]."""
        return self.blocks.sum((-2, -1))


class Strip(NamedTuple):
    """Some rows of the kernels of a group.

    Attributes:
        group: Index of the group.
        start: First row.
        stop: Row after the last.
        values: Values of each kernel in turn [stop - start, columns], with 1 for kernels and 0 for kernels minus one.
    """

    group: int
    start: int
    stop: int
    values: Iterable[tuple[Tensor, float]]


def row_spans(rows: int, columns: int, block: int, same: bool, device: str) -> list[tuple[int, int]]:
    """Cut rows into strips of whole blocks, or of parts of one block, that fit in cache and memory budget."""
    at_most = max(1, chunking.MEMORY_BUDGET // (6 * 8 * columns))
    if device == "cpu":
        at_most = max(1, min(at_most, STRIP // (4 * columns)))
    # strips of a symmetric matrix, or more: each costs a few pairs beyond the upper triangle
    at_most = min(at_most, max(64, -(-rows // 3))) if same else at_most
    step = block * (at_most // block) or at_most
    full, outer = rows // block * block, max(step, block)
    starts = [a for start in range(0, full, outer) for a in range(start, min(start + outer, full), step)]
    starts += range(full, rows, at_most)
    return list(zip(starts, [*starts[1:], rows], strict=True))


def gaussians_of(
    distances: Tensor, gammas: Sequence[float], own: float | None, typical: float
) -> Iterator[tuple[Tensor, float]]:
    """Yield exp(-gamma · distances) for each gamma, computed in place, and for a gamma outside the mixture.

    If a typical pair is near, 1 is subtracted, and the second number is 0. A Gaussian of four times the gamma is
    computed as the fourth power.
    """
    values, before, near = None, 0.0, typical * gammas[0] < NEAR
    for gamma in gammas:
        if values is None or gamma != 4 * before:
            values = _exponential(distances, gamma, near)
        elif near:
            for _ in range(2):
                values.mul_(values + 2)
        else:
            values.square_().square_()
        before = gamma
        yield values, float(not near)
    if own is not None:
        yield _exponential(distances, own, typical * own < NEAR), float(typical * own >= NEAR)


def _exponential(distances: Tensor, gamma: float, near: bool) -> Tensor:
    """Return exp(-gamma · distances), minus 1 with `near`."""
    exponents = distances * -gamma
    return exponents.expm1_() if near else exponents.exp_()


def sum_of_squares(values: Tensor, constant: float) -> Tensor:
    """Return the sum of squares of values minus a constant, float64."""
    rows = squared_norms(values).double()
    if constant:
        rows = rows - 2 * constant * values.sum(1).double() + constant**2 * values.shape[1]
    return rows.sum()


def with_diagonal(matrix: Tensor, value: float) -> Tensor:
    """Return [N, M] with a constant diagonal, in place unless a gradient is needed."""
    if matrix.requires_grad:
        return matrix.masked_fill(torch.eye(*matrix.shape, dtype=torch.bool, device=matrix.device), value)
    return matrix.fill_diagonal_(value)
