# SPDX-License-Identifier: Apache-2.0
"""CKA between all pairs of sites through the Taylor features of the Gaussian kernel.

tr(K H L H) / n² is the squared Frobenius norm of the cross-covariance of the features of two sites. Rotated onto their
principal axes, a site has a few strong and many weak features. The weak ones are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from genmonitor.linalg.chunking import in_cache, row_blocks
from genmonitor.linalg.feature_maps import taylor_features, taylor_size

MAX_DEGREE = 12


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
    if degree > MAX_DEGREE or taylor_size(per_site, degree) > n // 2:
        return None
    # as many levels cost as much as the product of Gram matrices, of which only the upper triangle is multiplied
    most = math.isqrt(n // 2)
    spectrum, axes = _principal_axes(shifted, gamma, degree, most)
    count = needed_levels(spectrum, tolerance / 4)
    if count > most:
        return None
    # tolerance from which products in float32 are precise enough; their relative error is below 5e-6
    levels = values.new_empty(count, len(values), n, dtype=torch.float32 if tolerance >= 1e-4 else torch.float64)
    for sites in _groups(shifted, degree):
        features = _centered_features(shifted[sites], gamma, degree)
        levels[:, sites] = (axes[sites, :, :count].transpose(1, 2) @ features).transpose(0, 1).to(levels)
    out = sum_of_squares(levels, spectrum.amax(0), tolerance / 4)
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


def normalized(hsic: Tensor) -> Tensor:
    """Normalize HSIC [d, d] to CKA: the diagonal is 1, or 0 where HSIC is 0."""
    own = hsic.diagonal().clone()
    scale = own.clamp_min(torch.finfo(hsic.dtype).tiny).rsqrt()
    out = (hsic * scale[:, None] * scale).clamp_(0, 1)
    out.diagonal().copy_((own > 0).to(out))
    return out


def needed_levels(spectrum: Tensor, tolerance: float) -> int:
    """Return the number of levels whose products give the CKA of any two sites within the tolerance.

    If S + W are the Gram matrices of two sites, with |S + W| = 1, the products that involve W add at most
    2 |W| + |W|².

    Args:
        spectrum: Spectrum of each site [d, R], of norm 1, in descending order.
        tolerance: Largest part that may be missing from an entry.
    """
    beyond = spectrum.square().flip(1).cumsum(1).flip(1).sqrt().amax(0)
    return max(1, int((beyond * (2 + beyond) > tolerance).sum()))


def level_pairs(weights: Tensor, tolerance: float) -> list[list[int]]:
    """List the pairs of levels to multiply, for the weights of `sum_of_squares` [R]."""
    return (weights[:, None] * weights > tolerance / len(weights) ** 2).nonzero().tolist()


def sum_of_squares(levels: Tensor, weights: Tensor, tolerance: float) -> Tensor:
    """Sum the squared products over pairs of levels, for all pairs of sites.

    Args:
        levels: Levels [R, d, N].
        weights: Largest squared norm of each level: a pair adds at most the product of both.
        tolerance: Largest part that may be missing from an entry.

    Returns:
        [d, d], float64.
    """
    d = levels.shape[1]
    pairs = level_pairs(weights[: len(levels)], tolerance)
    out = levels.new_zeros(d, d, dtype=torch.float64)
    for start, stop in row_blocks(d, 4 * levels.element_size()):
        for k, other in pairs:
            out[start:stop, start:] += (levels[k, start:stop] @ levels[other, start:].T).square_()
    return out.triu_() + out.triu(1).T


def _principal_axes(shifted: Tensor, gamma: float, degree: int, most: int) -> tuple[Tensor, Tensor]:
    """Return the principal axes of each site's Taylor features.

    Returns:
        The whole spectrum [d, R], of norm 1, in descending order, and the axes [d, R, at most `most`], scaled so that
        CKA is the sum of squared products over pairs of levels.
    """
    spectrum, axes = [], []
    for sites in _groups(shifted, degree):
        features = _centered_features(shifted[sites], gamma, degree)
        eigenvalues, vectors = _falling_eigenpairs(features @ features.transpose(1, 2))
        norm = torch.linalg.vector_norm(eigenvalues, dim=1, keepdim=True)
        spectrum.append(eigenvalues / norm)
        axes.append(vectors[:, :, :most] / norm[:, :, None].sqrt())
    return torch.cat(spectrum), torch.cat(axes)


def _groups(shifted: Tensor, degree: int) -> Iterator[slice]:
    """Cut sites [d, V, N] into groups whose features fit in the cache."""
    d, values, n = shifted.shape
    return in_cache(d, torch.float64.itemsize * taylor_size(values, degree) * n)


def _centered_features(shifted: Tensor, gamma: float, degree: int) -> Tensor:
    features = taylor_features(shifted.double(), gamma, degree)
    features -= features.mean(2, keepdim=True)
    return features


def _falling_eigenpairs(matrices: Tensor) -> tuple[Tensor, Tensor]:
    try:
        eigenvalues, axes = torch.linalg.eigh(matrices)
        return eigenvalues.flip(1).clamp_min(0), axes.flip(2)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        # LAPACK's divide and conquer fails to converge on some matrices with many zero rows, such as of dark patches
        axes, eigenvalues, _ = torch.linalg.svd(matrices)
        return eigenvalues, axes
