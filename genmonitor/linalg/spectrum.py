# SPDX-License-Identifier: Apache-2.0
"""Spectra of covariances and Gram matrices: eigenvalues, their entropy, and what one set of features explains."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genmonitor._validation import check_order

FLOOR = 1e-12
"""Eigenvalues up to so much of the matrix's norm are rounding in float64.

A product of 4096 samples (`CHUNK_ROWS`) is off by 4096 · 2⁻⁵³ = 5e-13 at most, and sums of such products by as much
again. In practice errors cancel, so that the zeros of a matrix of low rank come out at 1e-16 of its norm.
"""


def psd_eigenvalues(matrix: Tensor, rounding: float | None = None, whole: Tensor | None = None) -> Tensor:
    """Eigenvalues of a positive semidefinite matrix, those that rounding could have made set to exactly 0.

    The floor is the Frobenius norm of `whole` times the largest of three: `FLOOR`; D times the float64 precision, the
    bound on what the eigenvalue solver adds; and twice `rounding`. Entries that are off by half of `rounding` each
    move no eigenvalue by more than half of it times the Frobenius norm. As they came out of sums, four times as much is
    allowed. An entropy of order q sees an eigenvalue at the floor as floor^q, which vanishes at order 1 and
    above but is 0.25 at order 0.05: what is below the floor is unknown, and does not count.

    Args:
        matrix: Symmetric [D, D].
        rounding: Relative precision of the products that the matrix is a sum of; None: that of its dtype.
        whole: What the matrix is a part of, so that rounding is relative to that; None: the matrix itself.

    Returns:
        Eigenvalues [D], float64, rising, none negative.

    Example:
        >>> psd_eigenvalues(torch.tensor([[2.0, 2.0], [2.0, 2.0]]))
        tensor([0., 4.], dtype=torch.float64)
    """
    rounding = rounding_of(matrix) if rounding is None else rounding
    norm = (matrix if whole is None else whole).detach().double().norm()
    floor = norm * max(FLOOR, len(matrix) * torch.finfo(torch.float64).eps, 2 * rounding)
    eigenvalues = torch.linalg.eigvalsh(matrix.double())
    return torch.where(eigenvalues > floor, eigenvalues, 0)


def rounding_of(matrix: Tensor) -> float:
    """Return the relative precision of the values of a matrix: that of its dtype, 0 for integers.

    Example:
        >>> rounding_of(torch.eye(2, dtype=torch.bfloat16))
        0.0078125
    """
    return torch.finfo(matrix.dtype).eps if matrix.is_floating_point() else 0.0


def entropy(eigenvalues: Tensor, order: float = 1.0) -> Tensor:
    """Rényi entropy of a spectrum in nats.

    H_1 = -Σ p log p, H_q = log(Σ p^q) / (1 - q), H_∞ = -log max p, with p the eigenvalues over their sum.

    Args:
        eigenvalues: [D], none negative, not all 0; zeros do not count.
        order: Q, positive; math.inf too.

    Returns:
        A scalar between 0 and log D, falling in the order.

    Example:
        >>> entropy(torch.tensor([0.5, 0.5, 0.0]), order=2).exp()
        tensor(2.)
    """
    check_order("order", order)
    positive = eigenvalues[eigenvalues > 0]
    p = positive / positive.sum()
    if abs(order - 1) < 1e-7:  # nearer than that, the formula below loses more than the limit is off
        return -(p * p.log()).sum()
    if math.isinf(order):
        return -p.max().log()
    # through logarithms: p^q underflows at large q
    return torch.logsumexp(order * p.log(), 0) / (1 - order)


def unnormalized_entropy(eigenvalues: Tensor) -> Tensor:
    """Σ λ log(S / λ) with S = Σ λ: the entropy of a part of a spectrum, weighted with the mass of that part.

    Args:
        eigenvalues: [D], none negative; zeros do not count.

    Returns:
        A scalar, not negative; 0 where no eigenvalue is positive.

    Example:
        >>> unnormalized_entropy(torch.tensor([0.25, 0.25, 0.0])).exp()
        tensor(1.4142)
    """
    positive = eigenvalues[eigenvalues > 0]
    return -(positive * (positive / positive.sum()).log()).sum()


def inverse_root(matrix: Tensor, rcond: float) -> Tensor:
    """R with R Rᵀ the pseudo-inverse of a positive semidefinite matrix.

    Args:
        matrix: Symmetric [D, D], float64.
        rcond: Eigenvalues up to rcond times the largest one count as zero.

    Returns:
        R [D, rank]; its columns say how many eigenvalues are above the cut-off.

    Example:
        >>> inverse_root(torch.diag(torch.tensor([0.0, 4.0], dtype=torch.float64)), rcond=1e-6).abs()
        tensor([[0.0000],
                [0.5000]], dtype=torch.float64)
    """
    # where even the Frobenius norm, no smaller than the largest eigenvalue, sets a cut-off that all pass, a Cholesky
    # factor takes the place of an eigendecomposition that costs ten times as much
    shift = rcond * matrix.norm() * torch.ones(len(matrix)).to(matrix)
    if matrix.any() and not int(torch.linalg.cholesky_ex(matrix - shift.diag()).info):
        lower = torch.linalg.cholesky(matrix)
        identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        return torch.linalg.solve_triangular(lower, identity, upper=False).T
    eigenvalues, vectors = _range_eigenpairs(matrix, rcond) or torch.linalg.eigh(matrix)
    keep = (eigenvalues > rcond * eigenvalues[-1]) & (eigenvalues > 0)
    return vectors[:, keep] / eigenvalues[keep].sqrt()


def _range_eigenpairs(matrix: Tensor, rcond: float) -> tuple[Tensor, Tensor] | None:
    """Return the eigenpairs of a large matrix of low rank, rising; None where it is not such a matrix.

    A few prompts make covariances of many features of low rank. A random subspace of so many columns, then of twice as
    many, and so on holds their range once hardly any trace is left outside, a thousandth of the cut-off.
    """
    generator, size = torch.Generator().manual_seed(0), len(matrix)
    columns = max(128, size // 32)
    while 8 * columns <= size:
        start = torch.randn(size, columns, generator=generator, dtype=matrix.dtype).to(matrix.device)
        basis = torch.linalg.qr(matrix @ torch.linalg.qr(matrix @ start).Q).Q
        eigenvalues, turn = torch.linalg.eigh(basis.T @ (matrix @ basis))
        if matrix.trace() - eigenvalues.sum() < 1e-3 * rcond * eigenvalues[-1]:
            return eigenvalues, basis @ turn
        columns *= 2
    return None


def largest_eigenpairs(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues of a symmetric matrix and their vectors.

    Args:
        matrix: Symmetric [D, D].
        count: K, at most D.

    Returns:
        Eigenvalues [K], falling, and vectors [D, K] as columns, each of norm 1 and of either sign.

    Example:
        >>> values, vectors = largest_eigenpairs(torch.diag(torch.tensor([1.0, 3.0, 2.0])), count=2)
        >>> values
        tensor([3., 2.])
    """
    eigenvalues, vectors = torch.linalg.eigh(matrix)
    return eigenvalues.flip(0)[:count], vectors.flip(1)[:, :count]
