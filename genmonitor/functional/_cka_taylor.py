# SPDX-License-Identifier: Apache-2.0
"""CKA between all pairs of sites through the Taylor features of the Gaussian kernel.

tr(K H L H) / n² is the squared Frobenius norm of the cross-covariance of the features of two sites. Rotated onto their
principal axes, a site has a few strong and many weak features. Pairs too weak to matter are never multiplied.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import in_cache, row_blocks
from genmonitor.linalg.feature_maps import taylor_features, taylor_size

Pairs = list[tuple[int, int]]
MAX_DEGREE = 12
FLOAT32_ERROR = 5e-6
"""Largest relative error of a sum of squared products in float32."""


def taylor_cka(values: Tensor, gamma: float, tolerance: float) -> Tensor | None:
    """Return the CKA of sites, each entry within the tolerance, or None if the product of Gram matrices costs less.

    Args:
        values: Values [d, V, N]: sites, all of which vary, by values per site, by samples.
        gamma: Gamma of the Gaussian kernel.
        tolerance: Largest error of an entry.

    Returns:
        [d, d], float64.
    """
    per_site, n = values.shape[1:]
    if taylor_size(per_site, 1) > n // 2:
        return None
    shifted = values - values.mean(2, keepdim=True, dtype=torch.float64).to(values)
    degree = choose_degree(shifted, gamma, tolerance / 4)
    size = taylor_size(per_site, degree)
    if degree > MAX_DEGREE or size > n // 2:
        return None
    if size > _levels_in_memory(shifted) and 8 * (len(values) * size) ** 2 <= chunking.MEMORY_BUDGET:
        return _cka_by_covariance(shifted, gamma, degree)
    levels, spectrum = _principal_levels(shifted, gamma, degree)
    pairs = level_pairs(spectrum, tolerance / 2)
    # n / 2 pairs cost as much as the product of Gram matrices, of which only the upper triangle is multiplied
    used = 1 + max(map(max, pairs))
    if len(pairs) > n // 2 or used > len(levels):
        return None
    out = sum_of_squares(levels[:used], spectrum[:, :used], pairs, tolerance / 2)
    out.diagonal().fill_(1)
    return out.clamp_(0, 1)


def taylor_bound(moment: Tensor, linear_norm: Tensor, gamma: float, degree: int) -> float:
    """Bound the error of any CKA entry when the Taylor features stop at a degree.

    The remainder of a site's Gram matrix is at most (2γ|u||v|)^(p+1) / (p+1)! in each entry. That is a matrix of rank
    one, whose Frobenius norm is proportional to n · mean |u|^(2p+2). The features of degree 1 alone bound the whole
    from below.

    Args:
        moment: Mean of |u|^(2 · degree + 2) per site [d].
        linear_norm: Frobenius norm of the covariance of the features of degree 1 per site [d].
        gamma: Gamma of the kernel.
        degree: Highest degree kept.
    """
    dropped = (2 * gamma) ** (degree + 1) / math.factorial(degree + 1) * moment
    return 2 * float((dropped / linear_norm).max())


def choose_degree(shifted: Tensor, gamma: float, tolerance: float) -> int:
    """Find the lowest Taylor degree whose bound is within the tolerance, or MAX_DEGREE + 1 if none is.

    Args:
        shifted: Values [d, V, N] of sites that vary, minus their mean.
        gamma: Gamma of the kernel.
        tolerance: Upper limit of `taylor_bound`.
    """
    d, values, n = shifted.shape
    squares, linear_norm = shifted.new_empty(d, n, dtype=torch.float64), shifted.new_empty(d, dtype=torch.float64)
    for sites in in_cache(d, squares.element_size() * values * n):
        some = shifted[sites].double()
        squares[sites] = torch.linalg.vecdot(some, some, dim=1)
        weighted = some * torch.exp(-gamma * squares[sites])[:, None]
        weighted -= weighted.mean(2, keepdim=True)
        covariance = weighted @ weighted.transpose(1, 2) / n
        linear_norm[sites] = 2 * gamma * covariance.square().sum((1, 2)).sqrt()
    for degree in range(1, MAX_DEGREE + 1):
        moment = squares.pow(degree + 1).mean(1)
        if taylor_bound(moment, linear_norm, gamma, degree) <= tolerance:
            return degree
    return MAX_DEGREE + 1


def _cka_by_covariance(shifted: Tensor, gamma: float, degree: int) -> Tensor:
    """Return the CKA from the covariance of the Taylor features of all sites, summed over a few images at a time.

    It costs more than products of principal levels, but its memory does not grow with the number of images.
    """
    d, values, n = shifted.shape
    size = d * taylor_size(values, degree)
    product = shifted.new_zeros(size, size, dtype=torch.float64)
    total = product.new_zeros(size)
    center: Tensor | None = None
    for start, stop in row_blocks(n, 4 * product.element_size(), columns=size):
        features = taylor_features(shifted[:, :, start:stop].double(), gamma, degree).flatten(0, 1)
        if center is None:  # near the mean of all, so that products lose nothing to cancellation
            center = features.mean(1, keepdim=True)
        features -= center
        total += features.sum(1)
        for a, b in row_blocks(size, product.element_size()):
            product[a:b, a:].addmm_(features[a:b], features[a:].T)
    covariance = product.addr_(total, total, alpha=-1 / n)
    covariance = covariance.triu_() + covariance.triu(1).T
    return normalized(covariance.unflatten(1, (d, -1)).unflatten(0, (d, -1)).square().sum((1, 3)))


def normalized(hsic: Tensor) -> Tensor:
    """Normalize HSIC [d, d] to CKA: the diagonal is 1, or 0 where HSIC is 0."""
    own = hsic.diagonal().clone()
    scale = own.clamp_min(torch.finfo(hsic.dtype).tiny).rsqrt()
    out = (hsic * scale[:, None] * scale).clamp_(0, 1)
    out.diagonal().copy_((own > 0).to(out))
    return out


def level_pairs(spectrum: Tensor, tolerance: float) -> Pairs:
    """List the pairs of levels to multiply; the others add up to less than the tolerance for any two sites.

    The shorter of two lists is returned. One leaves out the weakest pairs, each of which adds at most the product of
    the weights of its two levels. The other leaves out all pairs with a level beyond the first r. If S + W are the Gram
    matrices of two sites, with |S + W| = 1, the products that involve W add at most 2 |W| + |W|².

    Args:
        spectrum: Spectrum of each site [d, R], in descending order.
        tolerance: Largest part that may be missing from an entry.
    """
    r = spectrum.shape[1]
    weight = _weights(spectrum).flatten()
    order = weight.argsort()
    kept = order[weight[order].cumsum(0) > tolerance].tolist()
    beyond = spectrum.square().flip(1).cumsum(1).flip(1).sqrt().amax(0)
    first = max(1, int((beyond * (2 + beyond) > tolerance).sum()))
    if first**2 < len(kept) or not kept:
        return [(k, other) for k in range(first) for other in range(first)]
    return sorted((index // r, index % r) for index in kept)


def sum_of_squares(levels: Tensor, spectrum: Tensor, pairs: Pairs, tolerance: float) -> Tensor:
    """Sum the squared products over pairs of levels for all pairs of sites, multiplying the upper triangle only.

    Args:
        levels: Levels [R, d, N], float64.
        spectrum: Squared norms of the levels [d, R].
        pairs: Pairs of levels, both (k, l) and (l, k).
        tolerance: Largest error of a pair in float32; pairs that exceed it are multiplied in float64.

    Returns:
        [d, d], float64.
    """
    d, weights = levels.shape[1], _weights(spectrum)
    heavy = [pair for pair in pairs if FLOAT32_ERROR * weights[pair] > tolerance]
    light = [pair for pair in pairs if FLOAT32_ERROR * weights[pair] <= tolerance]
    singles = {level: levels[level].float() for pair in light for level in pair}
    out = levels.new_empty(d, d)
    for start, stop in row_blocks(d, 4 * levels.element_size()):
        block = levels.new_zeros(stop - start, d - start)
        total = block.new_zeros(block.shape, dtype=torch.float32)
        for factors, into, some in ((levels, block, heavy), (singles, total, light)):
            for k, other in some:
                product = factors[k][start:stop] @ factors[other][start:].T
                into.addcmul_(product, product)
        out[start:stop, start:] = block.add_(total)
        out[stop:, start:stop] = block[:, stop - start :].T
        square = out[start:stop, start:stop]  # rounding differs between the two sides of the diagonal
        square.copy_(square.triu() + square.triu(1).T)
    return out


def _weights(spectrum: Tensor) -> Tensor:
    """Return the largest contribution of each pair of levels to an entry [R, R]."""
    largest = spectrum.amax(0)
    return largest[:, None] * largest


def _principal_levels(shifted: Tensor, gamma: float, degree: int) -> tuple[Tensor, Tensor]:
    """Rotate each site's Taylor features onto their principal axes.

    Returns:
        The strongest levels [at most R, d, N], as many as fit into the memory budget twice. They are scaled so that CKA
        is the sum of squared products over pairs of levels. Then the whole spectrum [d, R], of norm 1, in descending
        order.
    """
    d, values, n = shifted.shape
    size = taylor_size(values, degree)
    spectrum = shifted.new_empty(d, size, dtype=torch.float64)
    kept = min(size, _levels_in_memory(shifted))
    levels = spectrum.new_empty(kept, d, n)
    for sites in in_cache(d, spectrum.element_size() * size * n):
        features = taylor_features(shifted[sites].double(), gamma, degree)
        features -= features.mean(2, keepdim=True)
        eigenvalues, axes = _falling_eigenpairs(features @ features.transpose(1, 2))
        norm = torch.linalg.vector_norm(eigenvalues, dim=1, keepdim=True)
        spectrum[sites] = eigenvalues / norm
        axes = axes[:, :, :kept] / norm[:, :, None].sqrt()
        levels[:, sites] = (axes.transpose(1, 2) @ features).transpose(0, 1)
    return levels, spectrum


def _levels_in_memory(shifted: Tensor) -> int:
    """Return the number of levels of site values [d, V, N] that fit into the memory budget twice."""
    d, _, n = shifted.shape
    return 2 * chunking.MEMORY_BUDGET // (torch.float64.itemsize * d * n)


def _falling_eigenpairs(matrices: Tensor) -> tuple[Tensor, Tensor]:
    try:
        eigenvalues, axes = torch.linalg.eigh(matrices)
        return eigenvalues.flip(1).clamp_min(0), axes.flip(2)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        # LAPACK's divide and conquer fails to converge on some matrices with many zero rows, such as of dark patches
        axes, eigenvalues, _ = torch.linalg.svd(matrices)
        return eigenvalues, axes
