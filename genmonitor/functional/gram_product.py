# SPDX-License-Identifier: Apache-2.0
"""HSIC between all pairs of sites as one product: each site's centred Gram matrix is a long row.

The row of a site is only ever held for a few images against all later ones, in float32 where the images are; the sums
over these pieces are float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from genmonitor import kernels
from genmonitor.kernels import GaussianKernel, Kernel, row_blocks

PIECE = 2**14
"""Entries of each row per product: few enough for sums in float32, many enough for the product to run at full speed."""
CACHE = 2**20
"""Bytes of Gram matrices that are made at a time, so that every step on them finds them in the cache."""


def gram_product(values: Tensor, kernel: Kernel) -> Tensor:
    """Return HSIC between all sites, up to one factor.

    Args:
        values: [d, V, N] sites, values per site, samples.
        kernel: Gaussian or Laplacian, with its gamma.

    Returns:
        [d, d], float64.
    """
    d, _, n = values.shape
    points = (values - values.mean(2, keepdim=True, dtype=torch.float64).to(values)).transpose(1, 2).contiguous()
    if kernel.width * float(torch.linalg.vecdot(points, points).max()) > 1:
        points = points.double()  # the rounding of the distances would show
    in_budget = min(PIECE, kernels.MEMORY_BUDGET // (2 * d * points.element_size())) // n
    rows = max(1, min(in_budget, -(-n // 16)))  # the pairs below the diagonal of so many rows are there twice
    half = _half_means(points, kernel, rows)
    out = values.new_zeros(d, d, dtype=torch.float64)
    buffer = points.new_empty(d * rows * n)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        piece = buffer[: d * (stop - start) * (n - start)].view(d, stop - start, n - start)
        for sites in _in_cache(piece):
            grams = _fill(piece[sites], points[sites], kernel, start)
            grams -= half[sites, start:stop, None]
            grams -= half[sites, None, start:]
            grams[:, :, stop - start :] *= math.sqrt(2)  # stands for the entry below the diagonal too
        piece = piece.flatten(1)
        for first, last in row_blocks(d, piece.element_size()):
            out[first:last, first:] += piece[first:last] @ piece[first:].T
    return out.triu_() + out.triu(1).T


def _half_means(points: Tensor, kernel: Kernel, rows: int) -> Tensor:
    """Return what, taken off both sides of an entry, centres a site's Gram matrix [d, N]."""
    d, n, _ = points.shape
    means = points.new_zeros(d, n, dtype=torch.float64)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        piece = points.new_empty(1, stop - start, n - start).expand(d, -1, -1)
        for sites in _in_cache(piece):
            grams = _fill(torch.empty_like(piece[sites]), points[sites], kernel, start)
            means[sites, start:stop] += grams.sum(2)
            means[sites, stop:] += grams[:, :, stop - start :].sum(1)
    means /= n
    return (means - means.mean(1, keepdim=True) / 2).to(points)


def _in_cache(piece: Tensor) -> Iterator[slice]:
    """Cut the sites of a piece into as many at a time as the cache holds."""
    step = max(1, CACHE // (piece[0].numel() * piece.element_size()))
    for first in range(0, len(piece), step):
        yield slice(first, min(first + step, len(piece)))


def _fill(out: Tensor, points: Tensor, kernel: Kernel, start: int) -> Tensor:
    """Write k(x_i, x_j) - 1 for j from `start` on and the first of these as i: out [d, I, N - start]."""
    y = points[:, start:]
    x = y[:, : out.shape[1]]
    if isinstance(kernel, GaussianKernel):
        squares = torch.linalg.vecdot(y, y)
        torch.add(squares[:, : out.shape[1], None], squares[:, None], out=out)
        out.baddbmm_(x, y.transpose(1, 2), beta=-kernel.width, alpha=2 * kernel.width).clamp_max_(0)
    else:
        torch.mul(torch.cdist(x, y, p=1), -kernel.width, out=out)
    return out.expm1_()
