# SPDX-License-Identifier: Apache-2.0
"""Hierarchical clustering of the sites of an image by their CKA, and the agreement of two clusterings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from genmonitor.linalg.chunking import in_cache
from genmonitor.linalg.distances import symmetric_product
from genmonitor.linalg.precision import full_precision

if TYPE_CHECKING:
    from numpy.typing import NDArray

Linkage = Literal["average", "ward", "smoothed"]
LINKAGES = ("average", "ward", "smoothed")


def site_points(matrix: Tensor, shape: tuple[int, int], linkage: Linkage) -> Tensor:
    """Return the points [N, N] that represent the N varying sites in clustering, their rows of a CKA matrix.

    For "smoothed" the rows and columns of the matrix are first averaged over neighboring sites, and each row is
    standardized, so that distances measure correlations of rows. Single pixels are noisy, and neighbors mostly belong
    together.

    Args:
        matrix: CKA matrix [d, d], with zero rows for constant sites.
        shape: Height h and width w of the sites.
        linkage: One of `LINKAGES`.

    Example:
        >>> site_points(torch.tensor([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 0]]), (1, 3), "average")
        tensor([[1.0000, 0.5000],
                [0.5000, 1.0000]])
    """
    varying = matrix.diagonal() != 0
    if linkage != "smoothed":
        return matrix[varying][:, varying]
    weight = _blurred(varying.to(matrix)[None], shape)
    blurred = _blurred(matrix, shape).div_(weight)
    blurred = _blurred(blurred.T, shape).div_(weight)
    blurred = blurred[varying]
    points = blurred[:, varying]
    points -= points.mean(1, keepdim=True)
    return points.div_(torch.linalg.vector_norm(points, dim=1, keepdim=True).clamp_min(torch.finfo(points.dtype).tiny))


def merge_tree(points: Tensor, linkage: Linkage) -> NDArray[Any]:
    """Merge points [N, D] by Euclidean distance, N at least 2; return the two clusters merged in each of N - 1 steps.

    Example:
        >>> merge_tree(torch.tensor([[0.0], [1.0], [5.0]]), "average").astype(int).tolist()
        [[0, 1], [2, 3]]
    """
    from scipy.cluster.hierarchy import linkage as scipy_linkage
    from scipy.spatial.distance import squareform

    centered = (points - points.mean(0)).float()
    condensed = squareform(_distances(centered).numpy(), checks=False)
    return scipy_linkage(condensed, method="ward" if linkage == "ward" else "average")[:, :2]


def cut_tree(merges: NDArray[Any], count: int) -> Tensor:
    """Label each point 1..count by undoing the last merges of the tree, also if several are equally far.

    Example:
        >>> import numpy as np
        >>> cut_tree(np.array([[0, 1], [2, 3]]), 2)
        tensor([1, 1, 2])
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(merges) + 1
    done = merges[: n - count].astype(int)
    made = np.arange(n, n + len(done)).repeat(2)
    tree = coo_array((np.ones(len(made)), (made, done.flatten())), shape=(2 * n, 2 * n))
    return torch.from_numpy(connected_components(tree, directed=False)[1][:n]).long() + 1


def adjusted_rand_index(first: Tensor, second: Tensor) -> float:
    """Return the agreement of two clusterings of the same points: 1 if equal, about 0 by chance.

    Args:
        first: Labels, integers >= 0, one per point [N].
        second: Labels of the other clustering, which need not correspond.

    References:
        Hubert and Arabie, "Comparing partitions", Journal of Classification 2, 1985.

    Example:
        >>> adjusted_rand_index(torch.tensor([1, 1, 2, 2]), torch.tensor([2, 2, 1, 1]))
        1.0
    """
    table = _contingency(first, second)
    pairs = [float((count * (count - 1) / 2).sum()) for count in (table, table.sum(0), table.sum(1), table.sum())]
    together, columns, rows, every = pairs
    expected, most = columns * rows / max(every, 1.0), (columns + rows) / 2
    return 1.0 if most == expected else (together - expected) / (most - expected)


def best_overlaps(labels: Tensor, others: Tensor) -> dict[int, float]:
    """Return for each label its largest Jaccard overlap with a cluster of another clustering, in [0, 1].

    Example:
        >>> best_overlaps(torch.tensor([1, 1, 1, 2]), torch.tensor([5, 5, 6, 6]))
        {1: 0.6666666666666666, 2: 0.5}
    """
    table = _contingency(labels, others)
    union = table.sum(1, keepdim=True) + table.sum(0) - table
    best = (table / union).amax(1)
    return {int(label): float(value) for label, value in zip(labels.unique(), best, strict=True)}


def _contingency(first: Tensor, second: Tensor) -> Tensor:
    """Count the points with each pair of labels, float64 [labels of the first, labels of the second]."""
    (used, i), (others, j) = (labels.unique(return_inverse=True) for labels in (first, second))
    shape = (len(used), len(others))
    return torch.bincount(i * shape[1] + j, minlength=shape[0] * shape[1]).reshape(shape).double()


def _blurred(rows: Tensor, shape: tuple[int, int]) -> Tensor:
    """Sum rows [n, h · w] over neighboring sites, with the weights of a Gaussian."""
    # sites are smoothed with a standard deviation of one site up to this side, beyond it in proportion to the side
    width = max(1.0, max(shape) / 32)
    down, across = (_gaussian(size, width).to(rows) for size in shape)
    out = rows.new_empty(rows.shape)
    for part in in_cache(len(rows), rows.element_size() * rows.shape[1]):
        out[part] = (down @ rows[part].unflatten(1, shape) @ across).flatten(1)
    return out


def _gaussian(size: int, width: float) -> Tensor:
    place = torch.arange(size, dtype=torch.float64)
    return torch.exp(-(place[:, None] - place).square() / (2 * width**2))


def _distances(centered: Tensor) -> Tensor:
    """Return Euclidean distances [N, N] on the CPU in float32, which may put equal points 1e-3 of the spread apart."""
    with full_precision():
        out = symmetric_product(centered)
    squares = out.diagonal().clone()
    return out.mul_(-2).add_(squares[:, None]).add_(squares).clamp_min_(0).sqrt_().fill_diagonal_(0).cpu()
