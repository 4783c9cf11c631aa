# SPDX-License-Identifier: Apache-2.0
"""The difference of two joint covariances in two forms: by the Gram matrix, or by covariances of features.

Λ = (1/N) Σ φ φᵀ over the test rows minus (eta/N') Σ φ φᵀ over the reference rows. Rows are those of a `PairKernel`, the
test side first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor._validation import check_min_samples, check_pairs
from genmonitor.kernels import Kernel
from genmonitor.kernels.covariance import FeatureMap
from genmonitor.kernels.product import PairKernel
from genmonitor.linalg.chunking import mirrored, row_blocks
from genmonitor.linalg.spectrum import Operator, Space, cholesky_root, rounding_of, unnormalized_entropy

DENSE_LIMIT = 1024
"""Size up to which all eigenpairs of a matrix are computed. Beyond it a Krylov space of the outermost ones is cheaper,
beyond four times this size even if it is nearly the whole space.
"""

TOTAL_SAMPLES = 2048
"""Largest number of samples of both sides together for the total, chosen at random, since its cost is cubic."""


MAX_BLOCKS = 32
"""Largest number of blocks of a Krylov space."""


@dataclass(frozen=True, eq=False)
class JointSpectrum:
    """A form of the difference: a space of directions, and the scores of samples on them.

    Attributes:
        space: Space whose Ritz pairs are eigenpairs of the difference.
        pooled: Operator `outer` of the space with the reference side added instead of subtracted.
        total: Σ λ log(S / λ) over the positive eigenvalues λ with sum S.
        scores: Function from vectors over the space's basis [b, k] to the scores of all rows [N + N', k]; without rows
            if none are kept.
        score_rows: Function from other rows [n, D + E] and directions [S, k] to scores [n, k].
        means: Mean features of both sides [2, S], if no rows are kept.
    """

    space: Space
    pooled: Operator
    total: Tensor
    scores: Callable[[Tensor], Tensor]
    score_rows: Callable[[Tensor, Tensor], Tensor]
    means: Tensor | None = None

    def most_shared(self, coefficients: Tensor) -> Tensor:
        """Return the direction of a subspace with the largest share of the samples of both sides together.

        It comes from a few steps of subspace iteration, accurate enough for display.

        Args:
            coefficients: Basis of the subspace over the space's basis [b, k].

        Returns:
            Unit vector over the space's basis [b, 1].
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


def joint_rows(
    test: tuple[object, object],
    reference: tuple[object, object],
    output_kernel: Kernel | None,
    prompt_kernel: Kernel | None,
) -> tuple[PairKernel, Tensor, Tensor]:
    """Check outputs and prompts of both sides; return their joint kernel, and the rows of each side for it.

    Args:
        test: Outputs [N, D] and prompts [N, E], N at least 2.
        reference: Outputs [N', D] and prompts [N', E], N' at least 2, from which gammas are resolved.
        output_kernel: Kernel of outputs; None for a Gaussian.
        prompt_kernel: Kernel of prompts; None for a Gaussian.
    """
    x, t = check_pairs("outputs", test[0], "prompts", test[1])
    y, u = check_pairs("reference_outputs", reference[0], "reference_prompts", reference[1], (x.shape[1], t.shape[1]))
    check_min_samples("outputs", x)
    check_min_samples("reference_outputs", y)
    dtype = torch.promote_types(x.dtype, y.dtype)
    kernel = PairKernel.of(y, u, output_kernel, prompt_kernel)
    return kernel, kernel.rows(x.to(dtype), t), kernel.rows(y.to(dtype), u)


def by_gram(rows: Tensor, n: int, eta: float, kernel: PairKernel, count: int) -> JointSpectrum:
    """Use the Gram matrix of all rows (kernel trick), where directions are weights of the rows.

    Args:
        rows: Rows [N + N', D + E].
        n: Number N of rows of the test side.
        eta: Weight of the reference side.
        kernel: Kernel of the rows.
        count: Number of eigenpairs of either sign that will be requested.
    """
    weights = side_weights(len(rows), n, eta, rows)
    distinct, index = distinct_rows(rows)
    signed, unsigned = (summed(side, index, len(distinct)) for side in (weights, weights.abs()))
    whole = takes_whole(len(distinct), count)
    entries = distinct.double() if whole else distinct
    spans = row_blocks(len(entries), 4 * entries.element_size())
    blocks = ((a, b, kernel.gram(entries[a:b], entries[a:])) for a, b in spans)
    matrix = mirrored(len(entries), blocks, entries)

    def outer(v: Tensor) -> Tensor:
        return signed * v

    if whole:
        space = Space.whole(matrix, outer)
        total = total_of(space.values)
    else:
        start, rounding = random_signs(len(distinct), count, distinct), rounding_of(distinct)
        space = Space.ends(lambda v: (matrix @ v.to(matrix)).double(), outer, rounding, start, count, MAX_BLOCKS)
        total = gram_total(rows, n, eta, kernel)

    def scores(coefficients: Tensor) -> Tensor:
        return (space.images @ coefficients)[index]

    def score_rows(others: Tensor, directions: Tensor) -> Tensor:
        dtype = torch.promote_types(others.dtype, distinct.dtype)
        known = distinct.to(dtype)
        return in_chunks(others.to(dtype), lambda some: kernel.gram(some, known).double() @ directions, len(known))

    return JointSpectrum(space, lambda v: unsigned * v, total, scores, score_rows)


def gram_total(rows: Tensor, n: int, eta: float, kernel: PairKernel) -> Tensor:
    """Return the total from all eigenvalues of at most `TOTAL_SAMPLES` rows, the same part of each side.

    Args:
        rows: Rows [N + N', D + E].
        n: Number N of rows of the test side.
        eta: Weight of the reference side.
        kernel: Kernel of the rows.
    """
    part, chosen = min(1.0, TOTAL_SAMPLES / len(rows)), []
    for side in (rows[:n], rows[n:]):
        # the same rows of sides of one size, which may be pairs
        order = torch.randperm(len(side), generator=torch.Generator().manual_seed(0)).to(side.device)
        chosen.append(side[order[: max(2, round(part * len(side)))]])
    some = torch.cat(chosen).double()
    distinct, index = distinct_rows(some)
    weights = summed(side_weights(len(some), len(chosen[0]), eta, some), index, len(distinct))
    lower = cholesky_root(kernel.gram(distinct, distinct))
    return total_of(torch.linalg.eigvalsh(lower.T @ (weights * lower)))


def distinct_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows without duplicates, and the index of each row among them.

    Equal rows become one row with the sum of their weights. With two equal rows the Gram matrix is singular, and
    rounding turns a zero sum of weights into a pair of eigenvalues as large as its square root.
    """
    distinct, index = torch.unique(rows, dim=0, return_inverse=True)
    if len(distinct) == len(rows):
        return rows, torch.arange(len(rows), device=rows.device)
    return distinct, index


def summed(weights: Tensor, index: Tensor, size: int) -> Tensor:
    """Add up the weights of equal rows [size, 1]."""
    return weights.new_zeros(size).index_add_(0, index, weights)[:, None]


def by_covariances(
    test: Tensor,
    reference: Tensor,
    eta: float,
    features: FeatureMap,
    count: int,
    means: Tensor | None = None,
    rows: Tensor | None = None,
) -> JointSpectrum:
    """Use the covariances of both sides' features, where directions are vectors of features.

    Args:
        test: Covariance (1/N) Σ φ φᵀ [R, R] of the test side, float64.
        reference: Covariance of the reference side.
        eta: Weight of the reference side.
        features: Feature map, to R values.
        count: Number of eigenpairs of either sign that will be requested.
        means: Mean features of both sides [2, R], float64, if no rows are kept.
        rows: Rows [N + N', D + E], if they are kept.
    """
    size, difference = len(test), test - eta * reference

    def outer(v: Tensor) -> Tensor:
        return difference @ v

    if takes_whole(size, count):
        space = Space.whole(torch.eye(size).to(test), outer)
        total = total_of(space.values)
    else:
        start, rounding = random_signs(size, count, test), torch.finfo(test.dtype).eps
        space = Space.ends(lambda v: v, outer, rounding, start, count, MAX_BLOCKS)
        total = total_of(torch.linalg.eigvalsh(difference))

    def score_rows(others: Tensor, directions: Tensor) -> Tensor:
        return in_chunks(others, lambda some: features(some).double() @ directions, size)

    def scores(coefficients: Tensor) -> Tensor:
        return coefficients[:0] if rows is None else score_rows(rows, space.vectors @ coefficients)

    return JointSpectrum(space, lambda v: test @ v + eta * (reference @ v), total, scores, score_rows, means)


def total_of(eigenvalues: Tensor) -> Tensor:
    """Return Σ λ log(S / λ) over the positive eigenvalues with sum S."""
    return unnormalized_entropy(eigenvalues.clamp_min(0))


def takes_whole(size: int, count: int) -> bool:
    """Return True if computing all eigenpairs is the fastest way to some number of them of either sign."""
    return size <= max(DENSE_LIMIT, min(16 * count, 4 * DENSE_LIMIT))


def side_weights(size: int, n: int, eta: float, like: Tensor) -> Tensor:
    """Return 1/N for each test row and -eta/N' for each reference row."""
    weights = torch.full((size,), 1 / n, dtype=torch.float64, device=like.device)
    weights[n:] = -eta / (size - n)
    return weights


def random_signs(size: int, count: int, like: Tensor) -> Tensor:
    """Draw the signs that a Krylov space starts with, always the same, one column more for each requested eigenpair."""
    generator = torch.Generator().manual_seed(0)
    # more columns of a block mean polynomials of lower degree
    columns = max(24, count + 8)
    return 2 * torch.randint(2, (size, columns), generator=generator).to(like.device, torch.float64) - 1


def in_chunks(rows: Tensor, function: Callable[[Tensor], Tensor], columns: int) -> Tensor:
    """Apply a function to a few rows at a time within the memory budget; `columns` is its number of columns."""
    spans = row_blocks(len(rows), 4 * rows.element_size(), columns=columns)
    return torch.cat([function(rows[a:b]) for a, b in spans])
