# SPDX-License-Identifier: Apache-2.0
"""Spectra of covariances and Gram matrices: eigenvalues, their entropy, pseudo-inverses, and the ends of large ones."""

from __future__ import annotations

import math
from collections.abc import Callable

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
    # The Frobenius norm is no smaller than the largest eigenvalue. Where even it sets a cut-off that all pass, a
    # Cholesky factor takes the place of an eigendecomposition, which costs ten times as much.
    shift = rcond * matrix.norm() * torch.ones(len(matrix)).to(matrix)
    if matrix.any() and not int(torch.linalg.cholesky_ex(matrix - shift.diag()).info):
        lower = torch.linalg.cholesky(matrix)
        identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        return torch.linalg.solve_triangular(lower, identity, upper=False).T
    eigenvalues, vectors = torch.linalg.eigh(matrix)
    keep = (eigenvalues > rcond * eigenvalues[-1]) & (eigenvalues > 0)
    return vectors[:, keep] / eigenvalues[keep].sqrt()


Operator = Callable[[Tensor], Tensor]


class Space:
    """A basis V, orthonormal in the inner product up to rounding, with the eigenpairs of the operator within it.

    The operator is outer ∘ inner under ⟨u, v⟩ = uᵀ inner(v), inner symmetric and positive semidefinite, outer
    symmetric. For a Gram matrix K and weights D, inner = K and outer = D give the operator D K; inner = identity an
    ordinary symmetric matrix.

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
