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

from genmonitor._validation import check_min_samples, check_pairs
from genmonitor.functional.promptsplit.total_estimate import TotalEstimate
from genmonitor.kernels import Kernel
from genmonitor.kernels.covariance import FeatureMap, covariance
from genmonitor.kernels.product import PairKernel
from genmonitor.linalg.chunking import BLOCK_ROWS, Blocks, SymmetricBlocks, row_blocks
from genmonitor.linalg.krylov import COLUMNS, Operator, Space
from genmonitor.linalg.spectrum import rounding_of, unnormalized_entropy

Gram = Callable[[Tensor, Tensor], Tensor]

Probes = Callable[[Tensor, int], Tensor | None]
"""From rows [N, D + E] and a number to as many random functions of them [N, k], whose covariance is the Gram matrix.

None where none are known.
"""

DENSE_LIMIT = 1024
"""Size up to which all eigenpairs of a matrix are computed: beyond, a Krylov space of the outermost is cheaper.

Up to four times that where so many are wanted that the space would be nearly whole.
"""


@dataclass(frozen=True, eq=False)
class JointSpectrum:
    """A form of the difference: a space of directions, and what samples score on them.

    Attributes:
        space: whose Ritz pairs are eigenpairs of the difference.
        pooled: the operator `space.outer` with the reference side added instead of taken away.
        estimate: of the total; None where the space is whole.
        scores: from vectors over the space's basis [b, k] to the scores of all rows at hand [N + N', k]; of no rows
            where none were kept.
        score_rows: from other rows [n, D + E] and directions [S, k] to scores [n, k].
        means: mean features of both sides [2, S], where no rows were kept.
    """

    space: Space
    pooled: Operator
    estimate: TotalEstimate | None
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

    def total(self) -> tuple[Tensor, Tensor]:
        """Return Σ λ log(S / λ) over the positive eigenvalues, and its standard error, 0 where all are known."""
        if self.estimate is not None:
            return self.estimate.total, self.estimate.error
        total = unnormalized_entropy(self.space.ritz()[0].clamp_min(0))
        return total, torch.zeros_like(total)


def joint_rows(
    test: tuple[object, object],
    reference: tuple[object, object],
    output_kernel: Kernel | None,
    prompt_kernel: Kernel | None,
) -> tuple[PairKernel, Tensor, Tensor]:
    """Check outputs and prompts of both sides; return their joint kernel, and the rows of either side for it.

    Args:
        test: outputs [N, D] and prompts [N, E], N at least 2.
        reference: outputs [N', D] and prompts [N', E], N' at least 2: open gammas are theirs.
        output_kernel: None for a Gaussian.
        prompt_kernel: None for a Gaussian.
    """
    x, t = check_pairs("outputs", test[0], "prompts", test[1])
    y, u = check_pairs("reference_outputs", reference[0], "reference_prompts", reference[1], (x.shape[1], t.shape[1]))
    check_min_samples("outputs", x)
    check_min_samples("reference_outputs", y)
    dtype = torch.promote_types(x.dtype, y.dtype)
    kernel = PairKernel.of(y, u, output_kernel, prompt_kernel)
    return kernel, kernel.rows(x.to(dtype), t), kernel.rows(y.to(dtype), u)


def by_gram(rows: Tensor, n: int, eta: float, gram: Gram, probes: Probes, count: int) -> JointSpectrum:
    """Use the Gram matrix of all rows, the kernel trick: directions are weights of the rows.

    Args:
        rows: [N + N', D + E].
        n: N.
        eta: weight of the reference side.
        gram: from rows [a, D + E] and [b, D + E] to their Gram matrix.
        probes: for that Gram matrix.
        count: eigenpairs of either sign that will be wanted.
    """
    weights = side_weights(len(rows), n, eta, rows)
    # equal rows are one with their weights added: with two of them the matrix is singular, and rounding makes of a
    # sum of weights that is zero a pair of eigenvalues as large as its square root
    distinct, index = torch.unique(rows, dim=0, return_inverse=True)
    if len(distinct) == len(rows):
        distinct, index = rows, torch.arange(len(rows), device=rows.device)
    signed, unsigned = (
        weights.new_zeros(len(distinct)).index_add_(0, index, side)[:, None] for side in (weights, weights.abs())
    )
    estimate: TotalEstimate | None = None
    if takes_whole(len(distinct), count):
        space = _whole_of_gram(distinct.double(), signed, gram)
    else:
        space, estimate = _ends_of_gram(distinct, signed, unsigned.sqrt(), gram, probes, count)

    def scores(coefficients: Tensor) -> Tensor:
        return (space.images @ coefficients)[index]

    def score_rows(others: Tensor, directions: Tensor) -> Tensor:
        dtype = torch.promote_types(others.dtype, distinct.dtype)
        known = distinct.to(dtype)
        return in_chunks(others.to(dtype), lambda some: gram(some, known).double() @ directions, len(known))

    return JointSpectrum(space, lambda v: unsigned * v, estimate, scores, score_rows)


def _whole_of_gram(rows: Tensor, weights: Tensor, gram: Gram) -> Space:
    """Return the space of all directions."""
    matrix = SymmetricBlocks(len(rows), rows, lambda a, b: gram(rows[a:b], rows[a:])).whole()
    return Space.whole(matrix, lambda v: weights * v)


def _ends_of_gram(
    rows: Tensor, weights: Tensor, scale: Tensor, gram: Gram, probes: Probes, count: int
) -> tuple[Space, TotalEstimate]:
    """Return a space that holds the modes, and the estimate of the total.

    Without random functions of the rows the probes are signs times the scale [N, 1] and, as their partners, what the
    Gram matrix makes of signs over it. Their shares, which may be negative, differ more.
    """
    matrix = SymmetricBlocks(len(rows), rows, lambda a, b: gram(rows[a:b], rows[a:]))
    # where blocks are computed again in every step, modes alone are worth many of these
    moments = matrix.moments(weights) if matrix.all_kept else ()
    estimate = TotalEstimate(moments, columns_for(count), patient=matrix.all_kept)
    drawn, partners = probes(rows, columns_for(count)), None
    if drawn is None:
        signs = random_signs(len(rows), count, rows)
        drawn, partners = scale * signs, matrix.product(signs / scale)
    space = Space.ends(
        matrix.product, lambda v: weights * v, rounding_of(rows), drawn, count, partners=partners, enough=estimate
    )
    return space, estimate


def by_features(rows: Tensor, n: int, eta: float, features: FeatureMap, count: int) -> JointSpectrum:
    """Use explicit features of the rows: directions are vectors of features.

    Args:
        rows: [N + N', D + E].
        n: N.
        eta: weight of the reference side.
        features: the map, to R values.
        count: eigenpairs of either sign that will be wanted.
    """
    size = features.size
    # as many rows as are read at a time: their angles are still in the cache when cosines are taken
    spans = [(a, min(a + BLOCK_ROWS, len(rows))) for a in range(0, len(rows), BLOCK_ROWS)]
    blocks = Blocks(spans, lambda a, b: features(rows[a:b]))
    weights = side_weights(len(rows), n, eta, rows)[:, None].to(rows)

    def scores(coefficients: Tensor) -> Tensor:
        narrow = (space.vectors @ coefficients).to(rows)
        return torch.cat([(block @ narrow).double() for _, _, block in blocks])

    def apply(v: Tensor, by: Tensor) -> Tensor:
        narrow, out = v.to(rows), torch.zeros_like(v)
        for a, b, block in blocks:
            out += block.T @ (by[a:b] * (block @ narrow))
        return out

    estimate: TotalEstimate | None = None
    if takes_whole(size, count):
        test, reference = (covariance([side], [features]) for side in (rows[:n], rows[n:]))
        spectrum = by_covariances(test, reference, eta, None, features, count)
        space, pooled = spectrum.space, spectrum.pooled
    else:
        signs = random_signs(size, count, rows)
        trace = sum(float(weights[a:b, 0] @ block.square().sum(1)) for a, b, block in blocks)
        estimate = TotalEstimate([trace], columns_for(count), patient=blocks.all_kept)
        space = Space.ends(lambda v: v, lambda v: apply(v, weights), rounding_of(rows), signs, count, enough=estimate)

        def pooled(v: Tensor) -> Tensor:
            return apply(v, weights.abs())

    return JointSpectrum(
        space,
        pooled,
        estimate,
        scores,
        lambda others, directions: in_chunks(others, lambda some: features(some).double() @ directions, size),
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
        count: eigenpairs of either sign that will be wanted.
    """
    size, difference = len(test), test - eta * reference
    estimate: TotalEstimate | None = None

    def outer(v: Tensor) -> Tensor:
        return difference @ v

    if takes_whole(size, count):
        space = Space.whole(torch.eye(size).to(test), outer)
    else:
        moments = float(difference.trace()), float(difference.square().sum())
        estimate = TotalEstimate(moments, columns_for(count), patient=True)
        rounding, signs = torch.finfo(test.dtype).eps, random_signs(size, count, test)
        space = Space.ends(lambda v: v, outer, rounding, signs, count, enough=estimate)
    return JointSpectrum(
        space,
        lambda v: test @ v + eta * (reference @ v),
        estimate,
        lambda coefficients: coefficients[:0],
        lambda others, directions: in_chunks(others, lambda some: features(some).double() @ directions, size),
        means,
    )


def takes_whole(size: int, count: int) -> bool:
    """Tell whether so many eigenpairs of either sign of a matrix are found fastest together with all others."""
    return size <= max(DENSE_LIMIT, min(16 * count, 4 * DENSE_LIMIT))


def side_weights(size: int, n: int, eta: float, like: Tensor) -> Tensor:
    """Return 1/N for each test row and -eta/N' for each reference row."""
    weights = torch.full((size,), 1 / n, dtype=torch.float64, device=like.device)
    weights[n:] = -eta / (size - n)
    return weights


def columns_for(count: int) -> int:
    """Return how many columns a block has: some more than the eigenpairs of either sign that are wanted."""
    return max(COLUMNS, count + COLUMNS // 3)


def random_signs(size: int, count: int, like: Tensor) -> Tensor:
    """Draw the signs that a Krylov space starts with, always the same."""
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.randint(2, (size, columns_for(count)), generator=generator).to(like.device, torch.float64) - 1


def in_chunks(rows: Tensor, function: Callable[[Tensor], Tensor], columns: int) -> Tensor:
    """Apply a function to some rows at a time, each giving so many columns, within the memory budget."""
    spans = row_blocks(len(rows), 4 * rows.element_size(), columns=columns)
    return torch.cat([function(rows[a:b]) for a, b in spans])
