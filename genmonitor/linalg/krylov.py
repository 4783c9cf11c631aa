# SPDX-License-Identifier: Apache-2.0
"""The ends of the spectrum of an operator that is self-adjoint in an inner product of its own.

The operator is outer ∘ inner under ⟨u, v⟩ = uᵀ inner(v), inner symmetric and positive semidefinite, outer symmetric.
For a Gram matrix K and weights D, inner = K and outer = D give the operator D K; inner = identity an ordinary
symmetric matrix.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]

COLUMNS = 32
"""Columns of a block: so many products at once cost little more than one."""

STEPS = 20
"""Blocks at most; about ten are enough where the wanted eigenvalues stand apart."""

TOLERANCE = 1e-6
"""The basis grows until every wanted residual is below this part of the largest eigenvalue."""

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

    def __iter__(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yield the first row, the row after the last, and these rows."""
        for index, (start, stop) in enumerate(self.spans):
            block = self._kept[index] if index < len(self._kept) else self._make(start, stop)
            for a in range(start, stop, BLOCK_ROWS):
                b = min(a + BLOCK_ROWS, stop)
                yield a, b, block[a - start : b - start]


class Columns:
    """A matrix that grows by columns without being copied.

    Args:
        first: a matrix with the right number of rows, dtype and device.
        capacity: columns at most.
    """

    def __init__(self, first: Tensor, capacity: int) -> None:
        self._rows = first.new_empty(capacity, len(first))
        self._count = 0

    def add(self, block: Tensor) -> None:
        """Add columns [N, k]."""
        self._rows[self._count : self._count + block.shape[1]] = block.T
        self._count += block.shape[1]

    def all(self) -> Tensor:
        """Return the columns so far [N, b], not a copy."""
        return self._rows[: self._count].T


class Space:
    """A basis V in which the operator is nearly diagonal: Ritz pairs with their residuals.

    Args:
        inner: [N, k] to [N, k], float64.
        outer: [N, k] to [N, k], float64.
        rounding: relative precision of what inner returns.
        first: a matrix with the rows, dtype and device of V.
        capacity: columns of V at most.
    """

    def __init__(self, inner: Operator, outer: Operator, rounding: float, first: Tensor, capacity: int) -> None:
        self.inner, self.outer, self.rounding = inner, outer, rounding
        self._vectors, self._images = Columns(first, capacity), Columns(first, capacity)
        self._gram = self._compressed = first.new_empty(0, 0)
        self._start, self._wanted = first, 0

    @classmethod
    def whole(cls, gram: Tensor, outer: Operator) -> Space:
        """Return the space of everything, for an inner product that is a matrix [N, N], float64, small enough."""
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        # duplicates make the matrix singular: as little is added as makes it definite in spite of rounding
        ridge = len(gram) * torch.finfo(gram.dtype).eps
        lower, failed = torch.linalg.cholesky_ex(gram)
        while failed and ridge < 1:
            lower, failed = torch.linalg.cholesky_ex(gram + ridge * identity)
            ridge *= 10
        space = cls(lambda v: gram @ v, outer, torch.finfo(gram.dtype).eps, lower, len(lower))
        space._vectors.add(torch.linalg.solve_triangular(lower.T, identity, upper=True))
        space._images.add(lower)
        space._gram, space._compressed = identity, lower.T @ outer(lower)
        return space

    @classmethod
    def ends(cls, inner: Operator, outer: Operator, rounding: float, start: Tensor, count: int) -> Space:
        """Return a block Krylov space that holds the `count` eigenpairs furthest from zero.

        Args:
            inner: as for the class.
            outer: as for the class.
            rounding: as for the class.
            start: random signs [N, k], k above `count`, times what `trace` takes as its scale.
            count: eigenpairs wanted.
        """
        space = cls(inner, outer, rounding, start, STEPS * start.shape[1])
        space._grow(start, count)
        space._start, space._wanted = start, count
        return space

    @property
    def vectors(self) -> Tensor:
        """V [N, b], orthonormal in the inner product up to rounding."""
        return self._vectors.all()

    @property
    def images(self) -> Tensor:
        """Return inner(V) [N, b]."""
        return self._images.all()

    def _grow(self, block: Tensor, count: int) -> None:
        """Add a block and what the operator makes of it, step by step, until `count` residuals are small."""
        for step in range(STEPS):
            block, factor = self._orthogonalised(block)
            image = self.inner(block)
            products = _symmetric(block.T @ image)
            converged = step > 0 and self._converged(count, factor, products)
            lengths, axes = torch.linalg.eigh(products)
            kept = lengths > self.rounding * len(block)
            if not kept.any():
                return
            turn = axes[:, kept] / lengths[kept].sqrt()
            block = self._append(block @ turn, image @ turn)
            if converged:
                return

    def ritz(self) -> tuple[Tensor, Tensor]:
        """Return the Ritz values [b], rising, and the vectors' coefficients over the basis [b, b]."""
        if not len(self._gram):
            return self._gram.new_zeros(0), self._gram
        lower = torch.linalg.cholesky(self._gram)
        half = torch.linalg.solve_triangular(lower, self._compressed, upper=False)
        values, turned = torch.linalg.eigh(_symmetric(torch.linalg.solve_triangular(lower, half.T, upper=False)))
        return values, torch.linalg.solve_triangular(lower.T, turned, upper=True)

    def quotients(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Return λ = ⟨v, M v⟩ of unit vectors over the basis [b, k], and ‖M v - λ v‖, the most that λ can be off by."""
        image = self.images @ coefficients
        applied = self.outer(image)
        values = (image * applied).sum(0)
        rest = applied - self.vectors @ coefficients * values
        return values, (rest * self.inner(rest)).sum(0).clamp_min(0).sqrt()

    def trace(self, functions: Sequence[Operator], scale: Tensor) -> list[Tensor]:
        """Estimate Σ f(λ) over the whole spectrum, for functions with f(0) = 0, in a space made by `ends`.

        The wanted eigenvalues are summed; the rest is estimated by Hutchinson's method, the columns that the basis
        started with being its probes. Good to a few per cent for functions with a kink at zero.

        Args:
            functions: of the eigenvalues [b].
            scale: [N] that the operator times its inverse is nearly symmetric with.
        """
        values, coefficients = self.ritz()
        probed = coefficients.T @ (self.images.T @ self._start)
        seen = coefficients.T @ (self.vectors.T @ (self._start / scale[:, None].square()))
        weights = (seen * probed).mean(1)
        weights[outermost(values, self._wanted)] = 1
        return [(function(values) * weights).sum() for function in functions]

    def _orthogonalised(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q, orthonormal and orthogonal to V in the inner product, and R with block = V (...) + Q R.

        Directions that rounding made are left out.
        """
        size, factor = block.norm(), torch.eye(block.shape[1], dtype=block.dtype, device=block.device)
        for _ in range(2):
            block, triangle = torch.linalg.qr(block - self.vectors @ (self.images.T @ block))
            factor = triangle @ factor
        turn, lengths, axes = torch.linalg.svd(factor, full_matrices=False)
        kept = lengths > self.rounding * size
        return block @ turn[:, kept], lengths[kept, None] * axes[kept]

    def _append(self, block: Tensor, image: Tensor) -> Tensor:
        """Add vectors and their images; return the block that comes next."""
        following = self.outer(image)
        self._vectors.add(block)
        self._images.add(image)
        self._gram = _bordered(self._gram, self.vectors.T @ image)
        self._compressed = _bordered(self._compressed, self.images.T @ following)
        return following

    def _converged(self, count: int, factor: Tensor, products: Tensor) -> bool:
        """Tell whether the wanted residuals are small, from the part of the next block that the basis lacks."""
        values, coefficients = self.ritz()
        wanted = outermost(values, count)
        left_over = factor @ coefficients[-factor.shape[1] :, wanted]
        squares = (left_over * (products @ left_over)).sum(0).clamp_min(0)
        return len(wanted) == count and bool((squares.sqrt() <= TOLERANCE * values.abs().max()).all())


def outermost(values: Tensor, count: int) -> Tensor:
    """Return where the `count` values furthest from zero are, by falling value.

    Example:
        >>> outermost(torch.tensor([-3.0, -1.0, 0.5, 2.0]), count=2)
        tensor([3, 0])
    """
    chosen = values.abs().argsort(descending=True, stable=True)[:count]
    return chosen[values[chosen].argsort(descending=True, stable=True)]


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.T) / 2


def _bordered(matrix: Tensor, columns: Tensor) -> Tensor:
    """Enlarge a symmetric matrix by columns [b + k, k], the last k rows of which are the new corner."""
    b = len(matrix)
    return torch.cat([torch.cat([matrix, columns[:b]], 1), torch.cat([columns[:b].T, _symmetric(columns[b:])], 1)])
