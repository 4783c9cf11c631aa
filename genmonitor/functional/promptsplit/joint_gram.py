# SPDX-License-Identifier: Apache-2.0
"""The difference of two joint covariances by the Gram matrix of all samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from genmonitor.functional.promptsplit.joint_spectrum import (
    JointSpectrum,
    columns_for,
    in_chunks,
    random_signs,
    rounding_of,
    side_weights,
    takes_whole,
)
from genmonitor.functional.promptsplit.total_estimate import TotalEstimate
from genmonitor.linalg.blocks import SymmetricBlocks
from genmonitor.linalg.krylov import Space

Gram = Callable[[Tensor, Tensor], Tensor]

Probes = Callable[[Tensor, int], Tensor | None]
"""From rows [N, D + E] and a number to as many random functions of them [N, k], whose covariance is the Gram matrix.

None where none are known.
"""


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
    # where blocks are made anew in every step, modes alone are worth many of these
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
