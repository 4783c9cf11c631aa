# SPDX-License-Identifier: Apache-2.0
"""Centered kernel alignment between sites of an image, for all pairs of sites at once.

tr(K H L H) / n² is a squared Frobenius norm of a cross-covariance of explicit features. The Gaussian kernel of one site
has few Taylor features, because gamma is the inverse distance of whole images. Rotated onto their principal axes, a
few of them are strong and many weak; the weak ones are left out. If a site has too many, and for other kernels, each
site's centered Gram matrix becomes a long row. All pairs are then one product of the matrix of these rows with itself.

A row is held in pieces only, a few images against all later ones, in float64. It is centered at the end, by the sums of
its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from genmonitor._validation import (
    check_at_least,
    check_features,
    check_images,
    check_min_samples,
    check_positive,
    check_same_length,
    plain,
)
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.base import check_kernel
from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import in_cache, row_blocks
from genmonitor.linalg.feature_maps import taylor_features, taylor_size
from genmonitor.linalg.precision import full_precision

CLUSTER_TOLERANCE = 0.02
"""Tolerance for clusters: errors are below 0.001 in practice, and other 1000 images change some entries by 0.1."""
MAX_DEGREE = 12
"""Largest degree of the Taylor features."""


def centered_kernel_alignment(x: Tensor, y: Tensor, *, kernel: Kernel | None = None) -> Tensor:
    """Centered kernel alignment of paired samples, HSIC(x, y) / sqrt(HSIC(x, x) HSIC(y, y)).

    Args:
        x: Samples [N, D].
        y: Samples [N, E], row i belonging to row i of x.
        kernel: Kernel; None for a Gaussian. A gamma that is not given is resolved for x and y separately.

    Returns:
        A float64 scalar in [0, 1]: 1 for y = x, 0 if either is constant, and near 0 only for independent samples. The
        plug-in estimator is biased upwards: independent scalars get about 3/N with the default kernel, and 1/N with one
        much wider than the data.

    Raises:
        ValueError: If the samples are fewer than 2 or not paired.

    References:
        Kornblith et al., "Similarity of Neural Network Representations Revisited", arXiv 1905.00414.
        Gruber, Ziegler and Buettner, "Disentangling Mean Embeddings for Better Diagnostics of Image Generators",
            arXiv 2409.01314, Eq. 11-13.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0]])
        >>> centered_kernel_alignment(x, 5 * x)
        tensor(1., dtype=torch.float64)
    """
    x, y = check_features("x", x).double(), check_features("y", y).double()
    check_min_samples("x", x)
    check_same_length("x", x, "y", y)
    check_kernel("kernel", kernel)
    kernel = kernel or GaussianKernel()
    k = _centered_gram(kernel.resolved(x)(x, x))
    m = _centered_gram(kernel.resolved(y)(y, y))
    norm = (k.square().sum() * m.square().sum()).sqrt()
    return ((k * m).sum() / norm).clamp(0, 1) if norm > 0 else norm


def pixel_cka(
    images: Tensor,
    *,
    kernel: Kernel | None = None,
    patch_size: int = 1,
    tolerance: float = 1e-6,
    batch_estimator: int | None = None,
) -> Tensor:
    """Centered kernel alignment between all pairs of sites of a set of images.

    Args:
        images: Images [N, C, H, W], N at least 2; integers are read as 0..255 and scaled to [0, 1] in float64.
        kernel: Kernel; None for a Gaussian. Its gamma is that of whole images.
        patch_size: Side of a site in pixels; it divides H and W.
        tolerance: Largest error of an entry; a larger tolerance is faster. Rounding in float32 may add 5e-7 at any
            tolerance.
        batch_estimator: Mini-batch size m of the paper's estimator; None for all images at once. The paper's is the
            mean over consecutive mini-batches (a shorter last one is not used), biased upwards by up to about 3/m.

    Returns:
        Matrix [d, d] in float64 with entries in [0, 1], for d = (H / patch_size) · (W / patch_size) sites in reading
        order. Rows and columns of constant sites are zero.

    Raises:
        ValueError: If an argument is out of its range.

    References:
        Gruber, Ziegler and Buettner, "Disentangling Mean Embeddings for Better Diagnostics of Image Generators",
            arXiv 2409.01314, Eq. 11-13.

    Example:
        >>> images = torch.tensor([[0.0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1]]).reshape(4, 1, 1, 3)
        >>> pixel_cka(images).round(decimals=6)
        tensor([[1., 1., 0.],
                [1., 1., 0.],
                [0., 0., 0.]], dtype=torch.float64)
    """
    x = cka_images(images)
    check_min_samples("images", x)
    check_cka_arguments(kernel, patch_size, tolerance, batch_estimator)
    check_patches("images", x, patch_size)
    kernel = (kernel or GaussianKernel()).resolved(x.flatten(1))
    with full_precision(), torch.no_grad():
        values = site_values(x, patch_size)
        varying = (values.amax(2) != values.amin(2)).any(1)
        if varying.all():
            return _varying_cka(values, kernel, tolerance, batch_estimator)
        out = values.new_zeros(len(values), len(values), dtype=torch.float64)
        if varying.any():
            index = varying.nonzero().flatten()
            out[index[:, None], index] = _varying_cka(values[varying], kernel, tolerance, batch_estimator)
    return out


def cka_images(images: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """Check images [N, C, H, W]; integers become float64, since float32 moves gray levels by 1e-5 of their distance."""
    x = check_images("images", images, shape)
    return x if plain(images).is_floating_point() else images.double() / 255


def site_values(images: Tensor, patch_size: int) -> Tensor:
    """Lay images [N, C, H, W] out by site: [d, C · patch_size², N]."""
    n, c, height, width = images.shape
    p, h, w = patch_size, height // patch_size, width // patch_size
    columns = images.flatten(1).T.contiguous()  # moving whole rows of N after it costs half of one permutation of all
    return columns.view(c, h, p, w, p, n).permute(1, 3, 0, 2, 4, 5).reshape(h * w, c * p * p, n)


def _varying_cka(values: Tensor, kernel: Kernel, tolerance: float, batch_estimator: int | None) -> Tensor:
    n = values.shape[2]
    if batch_estimator is not None:
        if n < batch_estimator:
            raise ValueError(f"Expected at least `batch_estimator`={batch_estimator} images, but got {n}.")
        return _batch_cka(values, kernel, batch_estimator)
    if kernel.has_taylor_features:
        by_features = taylor_cka(values, kernel.resolved_gamma, tolerance)
        if by_features is not None:
            return by_features
    return normalized(gram_product(values, kernel))


def _batch_cka(values: Tensor, kernel: Kernel, m: int) -> Tensor:
    """Average the CKA over mini-batches, each entry over those in which both sites vary."""
    d, _, n = values.shape
    total = values.new_zeros(d, d, dtype=torch.float64)
    count = values.new_zeros(d, d)
    for start in range(0, n - m + 1, m):
        batch = values[:, :, start : start + m]
        varying = (batch.amax(2) != batch.amin(2)).any(1)
        index = varying.nonzero().flatten()
        if len(index):
            total[index[:, None], index] += normalized(gram_product(batch[index], kernel))
            count[index[:, None], index] += 1
    return total / count.clamp_min(1)


def gram_product(values: Tensor, kernel: Kernel) -> Tensor:
    """Return HSIC between all sites, up to one factor.

    Args:
        values: Values [d, V, N]: sites, by values per site, by samples.
        kernel: Kernel with its gamma set.

    Returns:
        HSIC [d, d], float64.
    """
    d, _, n = values.shape
    points = values.double()
    points = (points - points.mean(2, keepdim=True) if kernel.shift_invariant else points).transpose(1, 2).contiguous()
    # entries of each row per product: many enough for the product to run at full speed
    in_budget = min(2**14, chunking.MEMORY_BUDGET // (2 * d * points.element_size())) // n
    rows = max(1, min(in_budget, -(-n // 16)))  # pairs within a piece are computed twice: keep them few
    out = values.new_zeros(d, d, dtype=torch.float64)
    sums = values.new_zeros(d, n, dtype=torch.float64)
    buffer = points.new_empty(d * rows * n)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        piece = buffer[: d * (stop - start) * (n - start)].view(d, stop - start, n - start)
        # bytes of Gram matrices computed at a time, so that they stay in the cache for every step
        for sites in in_cache(d, piece[0].nbytes, 2**20):
            grams = kernel.site_grams(points[sites, start:stop], points[sites, start:], piece[sites])
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


def _centered_gram(k: Tensor) -> Tensor:
    return k - k.mean(0) - k.mean(1, keepdim=True) + k.mean()


def check_cka_arguments(kernel: Kernel | None, patch_size: int, tolerance: float, batch_estimator: int | None) -> None:
    """Refuse arguments of the CKA of pixels that are invalid for any images."""
    check_kernel("kernel", kernel, with_gamma=True)
    check_at_least("patch_size", patch_size, 1)
    check_positive("tolerance", tolerance)
    if batch_estimator is not None:
        check_at_least("batch_estimator", batch_estimator, 2)


def check_patches(name: str, images: Tensor, patch_size: int) -> None:
    """Refuse images that patches of this size do not tile."""
    h, w = images.shape[2:]
    if h % patch_size or w % patch_size:
        raise ValueError(f"Expected `patch_size` to divide the size {h}×{w} of `{name}`, but got {patch_size}.")


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
        rows, own = out[start:stop, start:], out[start:stop, start:stop]
        for k, other in pairs:
            rows += (levels[k, start:stop] @ levels[other, start:].T).square_()
        own.copy_(own.triu() + own.triu(1).T)
        out[stop:, start:stop] = out[start:stop, stop:].T
    return out


def _principal_axes(shifted: Tensor, gamma: float, degree: int, most: int) -> tuple[Tensor, Tensor]:
    """Return the principal axes of each site's Taylor features.

    Returns:
        The whole spectrum [d, R], of norm 1, in descending order, and the axes [d, R, at most `most`]. Their scale
        makes CKA the sum of squared products over pairs of levels.
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
