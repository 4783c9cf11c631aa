# SPDX-License-Identifier: Apache-2.0
"""The difference of two joint covariances in its forms: by the Gram matrix, by random features, by their covariances.

Λ = (1/N) Σ φ φᵀ over the test rows less (eta/N') Σ φ φᵀ over the reference rows. Rows are those of a `PairKernel`, the
test side first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor.kernels.covariance import FeatureMap, covariance
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.krylov import BLOCK_ROWS, COLUMNS, Blocks, Operator, Space
from genmonitor.linalg.spectrum import unnormalized_entropy

DENSE_LIMIT = 2048
"""Size up to which a matrix is decomposed whole: a few seconds on two cores."""

Gram = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class JointSpectrum:
    """A form of the difference: a space of directions, and what samples score on them.

    Attributes:
        space: whose Ritz pairs are eigenpairs of the difference.
        pooled: the operator `space.outer` with the reference side added instead of taken away.
        exact: whether the space holds the whole spectrum.
        scale: [N], as `Space.trace` takes it.
        scores: from vectors over the space's basis [b, k] to the scores of all rows at hand [N + N', k]; of no rows
            where none were kept.
        score_rows: from other rows [n, D + E] and directions [S, k] to scores [n, k].
        means: mean features of both sides [2, S], where no rows were kept.
    """

    space: Space
    pooled: Operator
    exact: bool
    scale: Tensor
    scores: Callable[[Tensor], Tensor]
    score_rows: Callable[[Tensor, Tensor], Tensor]
    means: Tensor | None = None

    def most_shared(self, coefficients: Tensor) -> Tensor:
        """Return the direction in a subspace that the samples of both sides together have most of.

        A few steps of subspace iteration: for showing, not to many digits.

        Args:
            coefficients: a basis of the subspace over the space's basis [b, k].

        Returns:
            Its unit vector over the space's basis [b, 1].
        """
        images = self.space.images @ coefficients

        def compressed(v: Tensor) -> Tensor:
            return images.T @ self.pooled(images @ v)

        generator = torch.Generator().manual_seed(0)
        block = torch.randn(images.shape[1], 8, generator=generator, dtype=images.dtype).to(images.device)
        for _ in range(3):
            block = torch.linalg.qr(compressed(block)).Q
        turn = torch.linalg.eigh(block.T @ compressed(block)).eigenvectors[:, -1:]
        return coefficients @ block @ turn

    def total(self) -> Tensor:
        """Return Σ λ log(S / λ) over the positive eigenvalues, an estimate where the spectrum is not whole."""
        if self.exact:
            return unnormalized_entropy(self.space.ritz()[0].clamp_min(0))
        mass, product = self.space.trace([lambda x: x.clamp_min(0), _product_with_log], self.scale)
        return mass * mass.log() - product if mass > 0 else torch.zeros_like(mass)


def by_gram(rows: Tensor, n: int, eta: float, gram: Gram, count: int) -> JointSpectrum:
    """Use the Gram matrix of all rows, the kernel trick: directions are weights of the rows.

    Args:
        rows: [N + N', D + E].
        n: N.
        eta: weight of the reference side.
        gram: from rows [a, D + E] and [b, D + E] to their Gram matrix.
        count: eigenpairs that will be wanted.
    """
    size = len(rows)
    weights = _weights(size, n, eta, rows)[:, None]
    exact = size <= DENSE_LIMIT
    if exact:
        double = rows.double()
        matrix = torch.cat([gram(double[a:b], double) for a, b in row_blocks(size, 32, columns=size)])
        space = Space.whole((matrix + matrix.T) / 2, lambda v: weights * v)
    else:
        start = _start(size, count, rows) * weights.abs().sqrt()
        space = Space.ends(gram_operator(rows, gram), lambda v: weights * v, _rounding(rows), start, count)

    def scores(coefficients: Tensor) -> Tensor:
        return space.images @ coefficients

    def score_rows(others: Tensor, directions: Tensor) -> Tensor:
        dtype = torch.promote_types(others.dtype, rows.dtype)
        known = rows.to(dtype)
        return _in_chunks(others.to(dtype), lambda some: gram(some, known).double() @ directions, size)

    return JointSpectrum(space, lambda v: weights.abs() * v, exact, weights.abs().sqrt()[:, 0], scores, score_rows)


def by_features(rows: Tensor, n: int, eta: float, features: FeatureMap, count: int) -> JointSpectrum:
    """Use explicit features of the rows: directions are vectors of features.

    Args:
        rows: [N + N', D + E].
        n: N.
        eta: weight of the reference side.
        features: the map, to R values.
        count: eigenpairs that will be wanted.
    """
    size = features.size
    # as many rows as are read at a time: their angles are still in the cache when cosines are taken
    spans = [(a, min(a + BLOCK_ROWS, len(rows))) for a in range(0, len(rows), BLOCK_ROWS)]
    blocks = Blocks(spans, lambda a, b: features(rows[a:b]))
    weights = _weights(len(rows), n, eta, rows)[:, None].to(rows)

    def scores(coefficients: Tensor) -> Tensor:
        narrow = (space.vectors @ coefficients).to(rows)
        return torch.cat([(block @ narrow).double() for _, _, block in blocks])

    def apply(v: Tensor, by: Tensor) -> Tensor:
        narrow, out = v.to(rows), torch.zeros_like(v)
        for a, b, block in blocks:
            out += block.T @ (by[a:b] * (block @ narrow))
        return out

    if size <= DENSE_LIMIT:
        test, reference = (covariance([side], [features]) for side in (rows[:n], rows[n:]))
        spectrum = by_covariances(test, reference, eta, None, features, count)
        space, pooled = spectrum.space, spectrum.pooled
    else:
        start = _start(size, count, rows)
        space = Space.ends(lambda v: v, lambda v: apply(v, weights), _rounding(rows), start, count)

        def pooled(v: Tensor) -> Tensor:
            return apply(v, weights.abs())

    return JointSpectrum(
        space,
        pooled,
        size <= DENSE_LIMIT,
        weights.new_ones(size, dtype=torch.float64),
        scores,
        lambda others, directions: _in_chunks(others, lambda some: features(some).double() @ directions, size),
    )


def by_covariances(
    test: Tensor, reference: Tensor, eta: float, means: Tensor | None, features: FeatureMap, count: int
) -> JointSpectrum:
    """Use the covariances of both sides' features alone: directions are vectors of features.

    Args:
        test: (1/N) Σ φ φᵀ [R, R], float64.
        reference: the same of the other side.
        eta: weight of the reference side.
        means: mean features of both sides [2, R], float64.
        features: the map.
        count: eigenpairs that will be wanted.
    """
    size = len(test)
    exact = size <= DENSE_LIMIT

    def outer(v: Tensor) -> Tensor:
        return test @ v - eta * (reference @ v)

    if exact:
        space = Space.whole(torch.eye(size).to(test), outer)
    else:
        space = Space.ends(lambda v: v, outer, torch.finfo(test.dtype).eps, _start(size, count, test), count)
    return JointSpectrum(
        space,
        lambda v: test @ v + eta * (reference @ v),
        exact,
        test.new_ones(size),
        lambda coefficients: coefficients[:0],
        lambda others, directions: _in_chunks(others, lambda some: features(some).double() @ directions, size),
        means,
    )


def gram_operator(rows: Tensor, gram: Gram) -> Operator:
    """Return the product with the Gram matrix of the rows, of which only the upper triangle is computed and read."""
    size = len(rows)
    spans = list(row_blocks(size, 4 * rows.element_size()))
    blocks = Blocks(spans, lambda a, b: gram(rows[a:b], rows[a:]))

    def product(v: Tensor) -> Tensor:
        narrow, out = v.to(rows), torch.zeros_like(v)
        for a, b, block in blocks:
            right = block[:, block.shape[1] + a - size :]
            out[a:b] += right @ narrow[a:]
            out[b:] += right[:, b - a :].T @ narrow[a:b]
        return out

    return product


def _weights(size: int, n: int, eta: float, like: Tensor) -> Tensor:
    """Return 1/N for each test row and -eta/N' for each reference row."""
    weights = torch.full((size,), 1 / n, dtype=torch.float64, device=like.device)
    weights[n:] = -eta / (size - n)
    return weights


def _start(size: int, count: int, like: Tensor) -> Tensor:
    """Draw the signs that a Krylov space starts with, always the same."""
    generator = torch.Generator().manual_seed(0)
    columns = max(COLUMNS, count + COLUMNS // 3)
    return 2 * torch.randint(2, (size, columns), generator=generator).to(like.device, torch.float64) - 1


def _rounding(rows: Tensor) -> float:
    return torch.finfo(rows.dtype).eps


def _in_chunks(rows: Tensor, function: Callable[[Tensor], Tensor], columns: int) -> Tensor:
    spans = row_blocks(len(rows), 4 * rows.element_size(), columns=columns)
    return torch.cat([function(rows[a:b]) for a, b in spans])


def _product_with_log(x: Tensor) -> Tensor:
    return torch.where(x > 0, x * x.clamp_min(torch.finfo(x.dtype).tiny).log(), 0)
