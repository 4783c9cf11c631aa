# SPDX-License-Identifier: Apache-2.0
"""Squared distances, products and nearest neighbors of samples, in the precision that their spread needs.

‖x‖² + ‖y‖² - 2⟨x, y⟩ costs one matrix product, but has an error of rounding times ‖x‖² + ‖y‖², even if x and y are
close. Three steps make this harmless. `centered` shifts samples so that their norms are those of their spread. It
converts to float64 if the rounding of float32 would still matter. `squared_distances` recomputes the pairs whose
distance is lost even in float64, one difference after the other. Comparisons of distances use bounds by `rounding`, so
that distances closer than rounding count as equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import mirrored, row_blocks, rows_in_cache

LOSS = 2.0**-20
"""Largest error by rounding of gamma ‖x - y‖², the exponent of a kernel: about a millionth. In float32 that allows
norms up to gamma ‖x‖² = 8. Real images and features have 1/2 on average by the median heuristic, and at most about 4.
Products have errors of a few units of rounding. Pairs with such norms have kernel values far below 1, so the error of
the mean of a kernel is 1e-7.
"""


def centered(x: Tensor, y: Tensor, gamma: float | None = None) -> tuple[Tensor, Tensor]:
    """Shift both sets by the mean of `y`, and convert them to float64 if their dtype loses distances.

    If some samples lie so far out that a shift by the mean would lose the others even in float64, both sets are
    returned unchanged.

    Args:
        x: Samples [N, D].
        y: Samples [M, D], of the same dtype; they may be `x`.
        gamma: Factor of squared distances; None for the inverse of a typical one.

    Returns:
        Both sets for `squared_distances`.

    Example:
        >>> x, _ = centered(torch.tensor([[1e6], [0.0], [1.0]]), torch.tensor([[0.0]]), gamma=1.0)
        >>> x.dtype
        torch.float64
    """
    shift = y.detach().mean(0)
    near_y = y - shift
    near_x = near_y if x is y else x - shift
    if holds_distances(near_y, gamma) and (x is y or holds_distances(near_x, gamma)):
        return near_x, near_y
    if x.dtype == torch.float64:
        return x, y
    wide = y.double()
    return centered(wide if x is y else x.double(), wide, gamma)


def holds_distances(x: Tensor, gamma: float | None = None) -> bool:
    """Return True if products give the distances of samples near zero to within `LOSS`, in the samples' own dtype.

    Squared norms must also stay well inside the range of the dtype, between the roots of its smallest and largest
    number. Squares and their products with gamma then neither overflow nor underflow.

    Args:
        x: Samples [N, D].
        gamma: Same as in `centered`.
    """
    if not len(x):
        return True
    squares, kind = squared_norms(x.detach()), torch.finfo(x.dtype)
    largest = float(squares.max())
    if not kind.tiny**0.5 <= largest <= kind.max**0.5:
        return False
    # of neighbors among about 256, since a few extreme samples do not change the median of their distances
    some = x.detach()[:: max(1, len(x) // 256)]
    typical = 1 / gamma if gamma else float(squared_norms(some[1:] - some[:-1]).median())
    return largest * kind.eps <= LOSS * typical


def squared_distances(
    x: Tensor,
    y: Tensor,
    gamma: float | None = None,
    then: Callable[[Tensor], Tensor] | None = None,
    margin: float = 0.0,
) -> Tensor:
    """Squared Euclidean distances through one matrix product, never negative.

    In float64 they are accurate to within `LOSS`, relative to themselves or, with `gamma`, to 1 / gamma. In float32
    this holds for samples that `centered` left in float32.

    Args:
        x: Samples [N, D].
        y: Samples [M, D].
        gamma: Same as in `centered`.
        then: Function that changes distances in place, a few rows at a time while they are in the cache; not under
            autograd.
        margin: `rounding` to return upper bounds of float64 distances instead, or its negative for lower bounds; not
            under autograd.

    Returns:
        Distances [N, M].

    Example:
        >>> squared_distances(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[25.]])
    """
    squares, others = squared_norms(x), squared_norms(y)
    exact = x.dtype != torch.float64 or _norms_suffice(squares.detach(), others.detach(), gamma)
    if torch.is_grad_enabled() and (x.requires_grad or y.requires_grad):
        out = torch.addmm(squares[:, None] + others, x, y.T, alpha=-2)
        if not exact:
            _correct(out, squares.detach(), others.detach(), x, y)
        return out.clamp_min(0)
    if margin:
        squares, others = squares * (1 + margin), others * (1 + margin)
    out = x @ y.T
    rows = rows_in_cache(out)
    for some, own, of in zip(out.split(rows), squares.split(rows), x.split(rows), strict=True):
        torch.add(others, some, alpha=-2, out=some).add_(own[:, None])
        if not exact:
            _correct(some, own, others, of, y, margin)
        some.clamp_min_(0)
        if then is not None:
            then(some)
    return out


def rounding(dim: int) -> float:
    """Return the error of float64: of a sum of squares relative to itself, of a product relative to the norms.

    Distances of samples with `dim` values that differ by no more count as equal. Exact ties occur for samples on a
    grid, such as binary or quantized ones, where rounding must not decide which is smaller.
    """
    return (dim + 8) * torch.finfo(torch.float64).eps


def symmetric_product(x: Tensor) -> Tensor:
    """Return x xᵀ, multiplying the upper triangle only.

    Args:
        x: Samples [N, D].

    Returns:
        Products [N, N].
    """
    blocks = ((a, b, x[a:b] @ x[a:].T) for a, b in row_blocks(len(x), x.element_size()))
    return mirrored(len(x), blocks, x)


def squared_norms(x: Tensor) -> Tensor:
    """Return the squared norm [...] of each row of [..., D]."""
    # by norms, which need no temporary of the size of `x`; of parts, since they sum one term after the other
    parts = [torch.linalg.vector_norm(part, dim=-1).square() for part in x.split(2048, dim=-1)]
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def _norms_suffice(squares: Tensor, others: Tensor, gamma: float | None) -> bool:
    """Return True if the norms show that no pair of float64 samples needs `_correct`."""
    if gamma is None or not len(squares) or not len(others):
        return gamma is not None
    return gamma * float(squares.max() + others.max()) * torch.finfo(torch.float64).eps <= LOSS


def _correct(distances: Tensor, squares: Tensor, others: Tensor, x: Tensor, y: Tensor, margin: float = 0.0) -> None:
    """Recompute, in place, the distances [N, M] that rounding or the margin may have changed by more than `LOSS`.

    Equal samples, of which a collapsed generator gives many pairs, are detected by a fingerprint.
    """
    if not distances.numel():
        return
    # those that may be, by the largest norms, in one pass; "not above" also finds NaN, the difference of two infinities
    resolved = max(torch.finfo(torch.float64).eps, 2 * abs(margin)) / LOSS
    rows, columns = (~(distances.detach() > resolved * (squares.max() + others.max()))).nonzero(as_tuple=True)
    lost = ~(distances.detach()[rows, columns] > resolved * (squares[rows] + others[columns]))
    rows, columns = rows[lost], columns[lost]
    if not len(rows):
        return
    distances.index_put_((rows, columns), distances.new_zeros(()))
    if len(rows) > len(x) + len(y):
        differ = _fingerprints(x)[rows] != _fingerprints(y)[columns]
        rows, columns = rows[differ], columns[differ]
    step = max(1, chunking.MEMORY_BUDGET // (3 * 8 * x.shape[1]))
    for i, j in zip(rows.split(step), columns.split(step), strict=True):
        distances.index_put_((i, j), (x[i] - y[j]).square().sum(1) * (1 + margin))


def _fingerprints(x: Tensor) -> Tensor:
    """Return a number for each float64 row, equal for equal rows only (up to a probability of 2⁻⁶⁴)."""
    generator = torch.Generator().manual_seed(0)
    odd = 2 * torch.randint(2**62, (x.shape[1],), generator=generator).to(x.device) + 1
    bits = (x.detach() + 0.0).view(torch.int64)  # the sum turns -0 into 0
    return torch.cat([(some * odd).sum(1) for some in bits.split(rows_in_cache(bits))])


def distance_blocks(x: Tensor, y: Tensor, margin: float = 0.0) -> Iterator[tuple[slice, Tensor]]:
    """Yield rows of x with their squared distances to all of y, in blocks within the memory budget of 512 MiB.

    Args:
        x: Samples [N, D].
        y: Samples [M, D].
        margin: Same as in `squared_distances`.

    Yields:
        Rows, and distances [rows, M], float64.
    """
    wide, same = y.double(), x is y
    near = centered(wide, wide)[0] if same else None
    # other samples are converted to float64 in blocks, which take a sixth of the budget
    for start, stop in row_blocks(len(x), 3 * 8, columns=len(y) + (0 if same else 6 * x.shape[1])):
        rows = slice(start, stop)
        some, others = centered(x[rows].double(), wide) if near is None else (near[rows], near)
        yield rows, squared_distances(some, others, margin=margin)


def knn(x: Tensor, y: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the squared distances of x [N, D] to the k nearest of y [M, D], and their indices.

    Args:
        x: Samples; if they are `y` itself, no sample is its own neighbor.
        y: Samples, at least k, or k + 1 if they are `x`.
        k: Number of neighbors.

    Returns:
        Squared distances [N, k], float64, the nearest first; indices [N, k].

    Example:
        >>> distances, indices = knn(torch.tensor([[0.0], [2.9]]), torch.tensor([[0.0], [1.0], [3.0]]), 1)
        >>> distances.flatten().tolist()[0], indices.flatten().tolist()
        (0.0, [0, 2])
    """
    distances, indices = [], []
    for rows, block in distance_blocks(x, y):
        if x is y:
            block[:, rows].fill_diagonal_(torch.inf)
        found = block.topk(k, largest=False)
        distances.append(found.values)
        indices.append(found.indices)
    return torch.cat(distances), torch.cat(indices)


def neighbor_radii(x: Tensor, k: int) -> Tensor:
    """Squared distance of each sample to its k-th nearest neighbor.

    Args:
        x: Samples [N, D], N above k.
        k: Number of neighbors.

    Returns:
        Squared distances [N], float64, computed from differences and thus exact for integers; 0 if k others equal the
        sample.
    """
    wide = x.double()
    _, neighbors = knn(wide, wide, k)
    return (wide - wide[neighbors[:, -1]]).square().sum(1)


def check_neighbors(k: int, **sides: Tensor) -> None:
    """Refuse sides, by name, with too few samples for k neighbors."""
    check_at_least("k", k, 1)
    for name, side in sides.items():
        if len(side) <= k:
            raise ValueError(
                f"Expected more than `k`={k} {name} samples, but got {len(side)}. Add samples or lower `k`."
            )
