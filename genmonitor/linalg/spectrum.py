# SPDX-License-Identifier: Apache-2.0
"""Spectra of covariances and Gram matrices: eigenvalues, their entropy, and pseudo-inverses."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genmonitor._validation import check_order

FLOOR = 1e-12
"""Part of the matrix's norm up to which eigenvalues are rounding in float64. The error of a product of 4096 samples
(`CHUNK_ROWS`) is at most 4096 · 2⁻⁵³ = 5e-13, and that of sums of such products twice as much. In practice errors
cancel, and the zeros of a matrix of low rank are about 1e-16 of its norm.
"""


def psd_eigenvalues(matrix: Tensor, rounding: float | None = None, whole: Tensor | None = None) -> Tensor:
    """Return the eigenvalues of a positive semidefinite matrix, with those that may be rounding set to exactly 0.

    The floor is the Frobenius norm of `whole` times the largest of three numbers. These are `FLOOR`, D times the
    float64 precision, which bounds the error of the eigenvalue solver, and twice `rounding`. Errors of half of
    `rounding` in each entry change no eigenvalue by more than half of it times the Frobenius norm. Since entries are
    sums, four times as much is allowed. In an entropy of order q an eigenvalue at the floor counts as floor^q, which
    vanishes at order 1 and above but is 0.25 at order 0.05. Eigenvalues below the floor are unknown and therefore do
    not count.

    Args:
        matrix: Symmetric [D, D].
        rounding: Relative precision of the products summed in the matrix; None for that of its dtype.
        whole: Matrix of which this one is a part, to which rounding is relative; None for the matrix itself.

    Returns:
        Eigenvalues [D], float64, non-negative, in rising order.

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
    """Return the relative precision of the values of a matrix, that of its dtype, or 0 for integers.

    Example:
        >>> rounding_of(torch.eye(2, dtype=torch.bfloat16))
        0.0078125
    """
    return torch.finfo(matrix.dtype).eps if matrix.is_floating_point() else 0.0


def entropy(eigenvalues: Tensor, order: float = 1.0) -> Tensor:
    """Rényi entropy of a spectrum in nats.

    H_1 = -Σ p log p, H_q = log(Σ p^q) / (1 - q), H_∞ = -log max p, with p the eigenvalues over their sum.

    Args:
        eigenvalues: Eigenvalues [D], non-negative, not all 0; zeros do not count.
        order: Order q, positive; may be math.inf.

    Returns:
        A scalar between 0 and log D, which decreases with the order.

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
        eigenvalues: Eigenvalues [D], non-negative; zeros do not count.

    Returns:
        A non-negative scalar; 0 if no eigenvalue is positive.

    Example:
        >>> unnormalized_entropy(torch.tensor([0.25, 0.25, 0.0])).exp()
        tensor(1.4142)
    """
    positive = eigenvalues[eigenvalues > 0]
    return -(positive * (positive / positive.sum()).log()).sum()


def inverse_root(matrix: Tensor, rcond: float) -> Tensor:
    """Return R with R Rᵀ the pseudo-inverse of a positive semidefinite matrix.

    Args:
        matrix: Symmetric [D, D], float64.
        rcond: Eigenvalues up to rcond times the largest one count as zero.

    Returns:
        R [D, rank], where the rank is the number of eigenvalues above the cut-off.

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
    eigenvalues, vectors = torch.linalg.eigh(matrix)
    keep = (eigenvalues > rcond * eigenvalues[-1]) & (eigenvalues > 0)
    return vectors[:, keep] / eigenvalues[keep].sqrt()


def largest_eigenpairs(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalues of a symmetric matrix and their eigenvectors.

    Args:
        matrix: Symmetric [D, D].
        count: Number K of eigenvalues, at most D.

    Returns:
        Eigenvalues [K] in falling order, and eigenvectors [D, K] as columns of norm 1, with arbitrary sign.

    Example:
        >>> values, vectors = largest_eigenpairs(torch.diag(torch.tensor([1.0, 3.0, 2.0])), count=2)
        >>> values
        tensor([3., 2.])
    """
    eigenvalues, vectors = torch.linalg.eigh(matrix)
    return eigenvalues.flip(0)[:count], vectors.flip(1)[:, :count]
