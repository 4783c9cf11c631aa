# SPDX-License-Identifier: Apache-2.0
"""The ends of the spectrum of an operator that is self-adjoint in an inner product of its own.

The operator is outer ∘ inner under ⟨u, v⟩ = uᵀ inner(v), inner symmetric and positive semidefinite, outer symmetric.
For a Gram matrix K and weights D, inner = K and outer = D give the operator D K; inner = identity an ordinary
symmetric matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]

COLUMNS = 32
"""Columns of a block: so many products at once cost little more than one."""

PROBES = 16
"""Random probes of a trace."""

PROBE_STEPS = 8
"""Blocks that a trace adds to the basis."""

STEPS = 20
"""Blocks at most; about ten are enough where the wanted eigenvalues stand apart."""

TOLERANCE = 1e-6
"""The basis grows until every wanted residual is below this part of the largest eigenvalue."""

BLOCK_ROWS = 512
"""Rows read at a time: few enough to be in the processor's cache for a second look."""

GRAM_BUDGET = 2**32
"""Bytes that a matrix read in every step may take: 4 GiB. A larger one is computed anew each time, block by block."""


class Blocks:
    """Blocks of rows of a large matrix: kept where they fit in `GRAM_BUDGET`, otherwise made each time they are read.

    Args:
        spans: first and last row (not included) of each block.
        make: makes the block of such a span.
        size: bytes of all blocks together.
    """

    def __init__(self, spans: Sequence[tuple[int, int]], make: Callable[[int, int], Tensor], size: int) -> None:
        self.spans = spans
        self._make = make
        self._kept = [make(*span) for span in spans] if size <= GRAM_BUDGET else None

    def __iter__(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yield the first row, the row after the last, and these rows."""
        for index, (start, stop) in enumerate(self.spans):
            block = self._make(start, stop) if self._kept is None else self._kept[index]
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
            start: random columns [N, k], k above `count`.
            count: eigenpairs wanted.
        """
        space = cls(inner, outer, rounding, start, STEPS * start.shape[1] + PROBE_STEPS * PROBES)
        space.grow(start, STEPS, count)
        return space

    @property
    def vectors(self) -> Tensor:
        """V [N, b], orthonormal in the inner product up to rounding."""
        return self._vectors.all()

    @property
    def images(self) -> Tensor:
        """Return inner(V) [N, b]."""
        return self._images.all()

    def grow(self, block: Tensor, steps: int, count: int | None = None) -> None:
        """Add a block and what the operator makes of it, step by step, until `count` residuals are small."""
        for step in range(steps):
            block, factor = self._orthogonalised(block)
            image = self.inner(block)
            products = _symmetric(block.T @ image)
            converged = step > 0 and count is not None and self._converged(count, factor, products)
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

    def trace(self, functions: Sequence[Operator], scale: Tensor, generator: torch.Generator) -> list[Tensor]:
        """Estimate Σ f(λ) over the whole spectrum, for functions with f(0) = 0, by random probes outside the basis.

        What lies in the basis so far is summed, the rest is estimated by Hutchinson's method in an enlarged basis. Good
        to a few per cent for functions with a kink at zero.

        Args:
            functions: of the eigenvalues [b].
            scale: [N] that the operator times its inverse is nearly symmetric with; the probes are scaled by it.
            generator: draws the probes.
        """
        known = self.vectors.shape[1]
        signs = torch.randint(2, (len(scale), PROBES), generator=generator).to(scale) * 2 - 1
        left, right = signs / scale[:, None], signs * scale[:, None]
        self.grow(right, PROBE_STEPS)
        values, coefficients = self.ritz()
        # coefficients = L⁻ᵀ turned and L Lᵀ the Gram matrix of the basis: L⁻¹ keeps what the first vectors span
        lower = torch.linalg.cholesky(self._gram)
        turned = lower.T @ coefficients
        probed = coefficients.T @ (self.images.T @ right)
        seen = torch.linalg.solve_triangular(lower, self.vectors.T @ left, upper=False)
        seen[:known] = 0
        weights = turned[:known].square().sum(0) + ((turned.T @ seen) * probed).mean(1)
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
