# SPDX-License-Identifier: Apache-2.0
"""The ends of the spectrum of an operator that is self-adjoint in its own inner product.

The operator is outer ∘ inner under ⟨u, v⟩ = uᵀ inner(v), inner symmetric and positive semidefinite, outer symmetric.
For a Gram matrix K and weights D, inner = K and outer = D give the operator D K; inner = identity an ordinary
symmetric matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]


class Space:
    """A basis V, orthonormal in the inner product up to rounding, with the eigenpairs of the operator within it.

    Attributes:
        vectors: V [N, b].
        images: Images of the vectors, inner(V) [N, b].
        values: Ritz values, in rising order.
        coefficients: Coefficients of the Ritz vectors over the basis, one vector per column.

    Args:
        inner: Function from [N, k] to [N, k], float64.
        outer: Function from [N, k] to [N, k], float64.
        vectors: Basis V [N, b].
        images: Images of the vectors, inner(V).
    """

    def __init__(self, inner: Operator, outer: Operator, vectors: Tensor, images: Tensor) -> None:
        self._inner, self._outer, self.vectors, self.images = inner, outer, vectors, images
        squares, axes = torch.linalg.eigh(_symmetric(vectors.T @ images))
        # squared norm, which should be 1, below which a direction of the basis is rounding
        root = axes[:, squares > 0.5] / squares[squares > 0.5].sqrt()
        within = images @ root
        self.values, turn = torch.linalg.eigh(_symmetric(within.T @ outer(within)))
        self.coefficients = root @ turn

    @classmethod
    def whole(cls, gram: Tensor, outer: Operator) -> Space:
        """Return the whole space for an inner product that is a small matrix [N, N], float64."""
        lower = cholesky_root(gram)
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        space = cls.__new__(cls)
        space._inner, space._outer = (lambda v: gram @ v), outer
        space.vectors, space.images = torch.linalg.solve_triangular(lower.T, identity, upper=True), lower
        space.values, space.coefficients = torch.linalg.eigh(_symmetric(lower.T @ outer(lower)))
        return space

    @classmethod
    def ends(
        cls, inner: Operator, outer: Operator, rounding: float, start: Tensor, count: int, max_blocks: int
    ) -> Space:
        """Return a block Krylov space that holds the eigenpairs farthest from zero.

        Args:
            inner: Same as in the class.
            outer: Same as in the class.
            rounding: Relative precision of the results of inner.
            start: Random vectors [N, k], k above `count`.
            count: Number of eigenpairs of either sign; all of them if there are fewer.
            max_blocks: Largest number of blocks of k columns.
        """
        capacity = min(len(start), max_blocks * start.shape[1])
        vectors, images = start.new_empty(2, len(start), capacity)
        size, block = 0, outer(start)
        if not block.any():  # as for two sides that are the same
            block = start
        for step in range(1, max_blocks + 1):
            directions, factor = _beyond(block, vectors[:, :size], images[:, :size], rounding)
            image = inner(directions)
            products = _symmetric(directions.T @ image)
            squares, axes = torch.linalg.eigh(products)
            kept = squares > rounding * len(start)
            added = int(kept.sum())
            exhausted = not added or size + added > capacity
            # blocks after which residuals are checked again: about eight to twelve hold the outermost eigenpairs
            if size and (exhausted or step % 4 == 0):
                space = cls(inner, outer, vectors[:, :size], images[:, :size])
                # the part of the operator's result outside of the basis comes only from the last block
                beyond = factor @ space.coefficients[-factor.shape[1] :]
                if exhausted or space._converged((beyond * (products @ beyond)).sum(0).clamp_min(0).sqrt(), count):
                    return space
            if exhausted:
                break
            axes = axes[:, kept] / squares[kept].sqrt()
            vectors[:, size : size + added] = directions @ axes
            images[:, size : size + added] = image @ axes
            block = outer(images[:, size : size + added])
            size += added
        return cls(inner, outer, vectors[:, :size], images[:, :size])

    def quotients(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Return λ = ⟨v, M v⟩ of unit vectors over the basis [b, k], and ‖M v - λ v‖, the largest error of λ."""
        image = self.images @ coefficients
        applied = self._outer(image)
        values = (image * applied).sum(0)
        rest = applied - self.vectors @ coefficients * values
        return values, (rest * self._inner(rest)).sum(0).clamp_min(0).sqrt()

    def _converged(self, residuals: Tensor, count: int) -> bool:
        wanted = outermost(self.values, count)
        # the basis grows until every wanted residual is below this part of the largest eigenvalue
        small = residuals[wanted] <= 1e-6 * self.values.abs().max()
        return len(self.values) >= 2 * count and bool(small.all())


def _beyond(block: Tensor, vectors: Tensor, images: Tensor, rounding: float) -> tuple[Tensor, Tensor]:
    """Return Q with orthonormal columns, orthogonal to V in the inner product, and R with block = V (...) + Q R.

    Directions that come from rounding are left out.
    """
    size = block.norm()
    for _ in range(2):  # a second time because of rounding
        block = block - vectors @ (images.T @ block)
    directions, lengths, turn = torch.linalg.svd(block, full_matrices=False)
    kept = lengths > rounding * size
    return directions[:, kept], lengths[kept, None] * turn[kept]


def cholesky_root(gram: Tensor) -> Tensor:
    """Return L [N, N], lower triangular, with L Lᵀ a positive semidefinite matrix, float64.

    Duplicates make the matrix singular. A small number is added to its diagonal, at first N units of the precision,
    until it is definite in spite of rounding.
    """
    ridge = len(gram) * torch.finfo(gram.dtype).eps
    lower, failed = torch.linalg.cholesky_ex(gram)
    while failed and ridge < 1:
        lower, failed = torch.linalg.cholesky_ex(gram + ridge * torch.eye(len(gram)).to(gram))
        ridge *= 10
    return lower


def outermost(values: Tensor, count: int) -> Tensor:
    """Return the indices of the largest positive and lowest negative values, at most `count` of each, in falling order.

    Example:
        >>> outermost(torch.tensor([-3.0, -1.0, 0.5, -2.0]), count=2)
        tensor([2, 3, 0])
    """
    falling = values.argsort(descending=True, stable=True)
    positive, negative = (int((side > 0).sum()) for side in (values, -values))
    return torch.cat([falling[: min(count, positive)], falling[len(falling) - min(count, negative) :]])


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.T) / 2
