# SPDX-License-Identifier: Apache-2.0
"""HSIC between all pairs of sites as one product: each site's centered Gram matrix is a long row.

A row is held in pieces only: a few images against all later ones, in the precision of the images; the sums over the
pieces are float64. The true centers are not known before the last piece: until then the kernel means over some images
stand in for them, so that the correction of the products at the end is small.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import in_cache, row_blocks

PIECE = 2**14
"""Entries of each row per product: few enough to sum in float32, many enough for the product to run at full speed."""
CACHE = 2**20
"""Bytes of Gram matrices made at a time, so that every step on them finds them in the cache."""
SOME = 32
"""Images over which the preliminary centers are averaged."""


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
        points = points.double()  # rounding of the distances would show in float32
    in_budget = min(PIECE, chunking.MEMORY_BUDGET // (2 * d * points.element_size())) // n
    rows = max(1, min(in_budget, -(-n // 16)))  # pairs within a piece are computed twice: keep them few
    half = _half_means(points, kernel)
    out = values.new_zeros(d, d, dtype=torch.float64)
    sums = values.new_zeros(d, n, dtype=torch.float64)
    buffer = points.new_empty(d * rows * n)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        piece = buffer[: d * (stop - start) * (n - start)].view(d, stop - start, n - start)
        for sites in in_cache(d, piece[0].nbytes, CACHE):
            grams = _fill(piece[sites], points[sites, start:stop], points[sites, start:], kernel)
            grams -= half[sites, start:stop, None]
            grams -= half[sites, None, start:]
            later = grams[:, :, stop - start :]
            sums[sites, start:stop] += grams.sum(2)
            sums[sites, stop:] += later.sum(1)
            later *= math.sqrt(2)  # counts for the entry below the diagonal too
        piece = piece.flatten(1)
        for first, last in row_blocks(d, piece.element_size()):
            out[first:last, first:] += piece[first:last] @ piece[first:].T
    # ⟨HKH, HLH⟩ = ⟨K, L⟩ - 2/n ⟨K1, L1⟩ + (1ᵀK1)(1ᵀL1) / n²
    out.addmm_(sums, sums.T, alpha=-2 / n).addr_(sums.mean(1), sums.mean(1))
    return out.triu_() + out.triu(1).T


def _half_means(points: Tensor, kernel: Kernel) -> Tensor:
    """Return what each row and each column of a site's Gram matrix is lowered by to center it roughly [d, N]."""
    d, n, _ = points.shape
    chosen = range(0, n, -(-n // SOME))
    means = points.new_empty(d, n)
    for sites in in_cache(d, len(chosen) * means[0].nbytes, CACHE):
        some = points[sites, chosen]
        grams = _fill(points.new_empty(*some.shape[:2], n), some, points[sites], kernel)
        means[sites] = grams.mean(1)
    return means - means.mean(1, keepdim=True) / 2


def _fill(out: Tensor, x: Tensor, y: Tensor, kernel: Kernel) -> Tensor:
    """Write k(x_i, y_j) - 1 of each site to out [d, I, J]; x is [d, I, V] and y [d, J, V]."""
    if isinstance(kernel, GaussianKernel):
        squares = torch.linalg.vecdot(x, x)[:, :, None], torch.linalg.vecdot(y, y)[:, None]
        torch.add(*squares, out=out).baddbmm_(x, y.transpose(1, 2), beta=-kernel.width, alpha=2 * kernel.width)
        out.clamp_max_(0)
    else:
        torch.mul(torch.cdist(x, y, p=1), -kernel.width, out=out)
    return out.expm1_()
