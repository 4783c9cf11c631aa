# SPDX-License-Identifier: Apache-2.0
"""The ends of the spectrum of an operator that is self-adjoint in an inner product of its own.

The operator is outer ∘ inner under ⟨u, v⟩ = uᵀ inner(v), inner symmetric and positive semidefinite, outer symmetric.
For a Gram matrix K and weights D, inner = K and outer = D give the operator D K; inner = identity an ordinary
symmetric matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]

COLUMNS = 24
"""Columns of a block at least: more of them cost more columns for the same degree of the polynomials that they hold."""

CAPACITY = 768
"""Columns of a basis, where that is at least `STEPS` blocks."""

STEPS = 20
"""Blocks of a basis at least; about ten hold the wanted eigenpairs where these stand apart."""

TOLERANCE = 1e-6
"""The basis grows until every wanted residual is below this part of the largest eigenvalue."""


class Columns:
    """A matrix that grows by columns without being copied.

    Args:
        first: a matrix with the right number of rows, dtype and device.
        capacity: columns at most.
    """

    def __init__(self, first: Tensor, capacity: int) -> None:
        self.capacity = capacity
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

    Attributes:
        residuals: [b], those of the Ritz values when they were last looked at.
        exhausted: whether the operator leads nowhere beyond the basis.

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
        self._pairs: tuple[Tensor, Tensor] | None = None
        self.residuals = first.new_empty(0)
        self._probes = self._partners = first
        self.exhausted = False

    @classmethod
    def whole(cls, gram: Tensor, outer: Operator) -> Space:
        """Return the space of everything, for an inner product that is a matrix [N, N], float64, small enough."""
        lower = cholesky_root(gram)
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        space = cls(lambda v: gram @ v, outer, torch.finfo(gram.dtype).eps, lower, len(lower))
        space._vectors.add(torch.linalg.solve_triangular(lower.T, identity, upper=True))
        space._images.add(lower)
        space._gram, space._compressed = identity, lower.T @ outer(lower)
        return space

    @classmethod
    def ends(
        cls,
        inner: Operator,
        outer: Operator,
        rounding: float,
        probes: Tensor,
        count: int,
        *,
        partners: Tensor | None = None,
        enough: Callable[[Space], bool] | None = None,
    ) -> Space:
        """Return a block Krylov space that holds the eigenpairs furthest from zero, `count` of either sign.

        Args:
            inner: as for the class.
            outer: as for the class.
            rounding: as for the class.
            probes: random H [N, k], k above `count`. For `shares` its columns h and those of the partners g must have
                E[h gᵀ] = inner: they stand for random directions with ⟨ξ, v⟩ = hᵀ v.
            count: eigenpairs wanted of either sign, or all where there are fewer.
            partners: G [N, k], the probes themselves for None.
            enough: told of the space now and then while it grows, and at the end; False keeps it growing.
        """
        space = cls(inner, outer, rounding, probes, max(CAPACITY, STEPS * probes.shape[1]))
        space._probes, space._partners = probes, probes if partners is None else partners
        space._grow(count, enough or (lambda space: True))
        return space

    @property
    def vectors(self) -> Tensor:
        """V [N, b], orthonormal in the inner product up to rounding."""
        return self._vectors.all()

    @property
    def images(self) -> Tensor:
        """Return inner(V) [N, b]."""
        return self._images.all()

    def _grow(self, count: int, enough: Callable[[Space], bool]) -> None:
        """Add a block and what the operator makes of it, step by step, until the wanted residuals are small."""
        block, checked, started = self.outer(self._probes), 0, False
        while True:
            block, factor = self._orthogonalised(block)
            image = self.inner(block)
            products = _symmetric(block.T @ image)
            lengths, axes = torch.linalg.eigh(products)
            kept = lengths > self.rounding * len(block)
            turn = axes[:, kept] / lengths[kept].sqrt()
            block, image, size = block @ turn, image @ turn, len(self._gram)
            gram = _bordered(self._gram, torch.cat([self.vectors.T @ image, block.T @ image]))
            # rounding makes what is left of the last directions depend on the others
            self.exhausted = not kept.any() or bool(torch.linalg.cholesky_ex(gram).info)
            full = size + block.shape[1] > self._vectors.capacity
            if not size and self.exhausted:
                if started:
                    return
                block, started = self._probes, True  # the operator is zero, as for two sides that are the same
                continue
            # Ritz pairs cost as much as a step once the basis is large
            if size and (self.exhausted or full or size >= 1.2 * checked):
                # of a Ritz pair, the part of the next block that the basis lacks
                left_over = factor @ self.ritz()[1][-factor.shape[1] :]
                self.residuals, checked = (left_over * (products @ left_over)).sum(0).clamp_min(0).sqrt(), size
                done = enough(self)
                if (done and self._converged(count)) or self.exhausted or full:
                    return
            block = self._append(block, image, gram)

    def ritz(self) -> tuple[Tensor, Tensor]:
        """Return the Ritz values [b], rising, and the vectors' coefficients over the basis [b, b]."""
        if not len(self._gram):
            return self._gram.new_zeros(0), self._gram
        if self._pairs is None:
            lower = torch.linalg.cholesky(self._gram)
            half = torch.linalg.solve_triangular(lower, self._compressed, upper=False)
            values, turned = torch.linalg.eigh(_symmetric(torch.linalg.solve_triangular(lower, half.T, upper=False)))
            self._pairs = values, torch.linalg.solve_triangular(lower.T, turned, upper=True)
        return self._pairs

    def quotients(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Return λ = ⟨v, M v⟩ of unit vectors over the basis [b, k], and ‖M v - λ v‖, the most that λ can be off by."""
        image = self.images @ coefficients
        applied = self.outer(image)
        values = (image * applied).sum(0)
        rest = applied - self.vectors @ coefficients * values
        return values, (rest * self.inner(rest)).sum(0).clamp_min(0).sqrt()

    def shares(self) -> Tensor:
        """Return what each pair of probes has of each Ritz vector y, ⟨ξ, y⟩⟨ξ', y⟩ [b, k], which is 1 in the mean."""
        turned = self.ritz()[1].T
        seen = turned @ (self.vectors.T @ self._probes)
        return seen * (seen if self._partners is self._probes else turned @ (self.vectors.T @ self._partners))

    def _orthogonalised(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q, orthonormal and orthogonal to V in the inner product, and R with block = V (...) + Q R.

        Directions that rounding made are left out.
        """
        size, factor = block.norm(), torch.eye(block.shape[1], dtype=block.dtype, device=block.device)
        for again in (False, True):
            # what the block that came last has of the basis is known at first
            known = len(self._gram) and not again
            inside = self._compressed[:, -block.shape[1] :] if known else self.images.T @ block
            block, triangle = torch.linalg.qr(block - self.vectors @ inside)
            factor = triangle @ factor
        turn, lengths, axes = torch.linalg.svd(factor, full_matrices=False)
        kept = lengths > self.rounding * size
        return block @ turn[:, kept], lengths[kept, None] * axes[kept]

    def _append(self, block: Tensor, image: Tensor, gram: Tensor) -> Tensor:
        """Add vectors and their images, with which the basis has that Gram matrix; return the block that comes next."""
        following = self.outer(image)
        self._vectors.add(block)
        self._images.add(image)
        self._gram = gram
        self._compressed = _bordered(self._compressed, self.images.T @ following)
        self._pairs = None
        return following

    def _converged(self, count: int) -> bool:
        """Tell whether the wanted residuals are small."""
        values = self.ritz()[0]
        wanted = outermost(values, count)
        return len(values) >= 2 * count and bool((self.residuals[wanted] <= TOLERANCE * values.abs().max()).all())


def cholesky_root(gram: Tensor) -> Tensor:
    """Return L [N, N], lower triangular, with L Lᵀ a positive semidefinite matrix, float64.

    Duplicates make it singular: as little is added to its diagonal as makes it definite in spite of rounding, N units
    of the precision at first.
    """
    ridge = len(gram) * torch.finfo(gram.dtype).eps
    lower, failed = torch.linalg.cholesky_ex(gram)
    while failed and ridge < 1:
        lower, failed = torch.linalg.cholesky_ex(gram + ridge * torch.eye(len(gram)).to(gram))
        ridge *= 10
    return lower


def outermost(values: Tensor, count: int) -> Tensor:
    """Return where the largest positive and the lowest negative values are, `count` of either at most, falling.

    Example:
        >>> outermost(torch.tensor([-3.0, -1.0, 0.5, -2.0]), count=2)
        tensor([2, 3, 0])
    """
    falling = values.argsort(descending=True, stable=True)
    positive, negative = (int((side > 0).sum()) for side in (values, -values))
    return torch.cat([falling[: min(count, positive)], falling[len(falling) - min(count, negative) :]])


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.T) / 2


def _bordered(matrix: Tensor, columns: Tensor) -> Tensor:
    """Enlarge a symmetric matrix by columns [b + k, k], the last k rows of which are the new corner."""
    b = len(matrix)
    return torch.cat([torch.cat([matrix, columns[:b]], 1), torch.cat([columns[:b].T, _symmetric(columns[b:])], 1)])
