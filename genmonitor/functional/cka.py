# SPDX-License-Identifier: Apache-2.0
"""Centered kernel alignment between sites of an image, for all pairs of sites at once.

tr(K H L H) / n² is a squared Frobenius norm of a cross-covariance of explicit features; the Gaussian kernel of one site
has few Taylor features, because gamma is one over the distance of whole images. Where it has too many, each site's
centered Gram matrix is a long row and all pairs are one product of that matrix with itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor._validation import check_features, check_images, check_min_samples, check_same_length
from genmonitor._validation.arguments import check_cka_arguments, check_kernel, check_patches
from genmonitor.functional._cka_gram import gram_product
from genmonitor.functional._cka_taylor import normalized, taylor_cka
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.linalg.precision import full_precision

CLUSTER_TOLERANCE = 0.02
"""Tolerance for clusters: entries come out within 0.001 of their exact value; another 1000 images move some by 0.1."""


def centered_kernel_alignment(x: Tensor, y: Tensor, *, kernel: Kernel | None = None) -> Tensor:
    """Centered kernel alignment of paired samples, HSIC(x, y) / sqrt(HSIC(x, x) HSIC(y, y)).

    Args:
        x: samples [N, D].
        y: samples [N, E], row i belonging to row i of x.
        kernel: None for a Gaussian; an open gamma is resolved for x and y separately.

    Returns:
        A scalar in [0, 1], float64: 1 for y = x, 0 where either is constant, and near 0 only for independent samples.
        It is the plug-in estimator, biased upwards: independent scalars get about 3/N with the default kernel, 1/N with
        one that is much wider than the data.

    Raises:
        ValueError: if the samples are fewer than 2 or not paired.

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
        images: [N, C, H, W], N at least 2.
        kernel: Gaussian or Laplacian; None for a Gaussian. Its gamma is that of whole images.
        patch_size: side of a site in pixels; it divides H and W.
        tolerance: how far an entry may be from its exact value; a looser one is faster. Rounding in float32 may add
            5e-7 whatever the tolerance.
        batch_estimator: None for all images at once. m for the paper's estimator: the mean of the values over
            consecutive mini-batches of m images (a shorter last one is not used), biased upwards by up to about 3/m.

    Returns:
        Matrix [d, d], d = (H / patch_size) · (W / patch_size) sites in reading order, float64, entries in [0, 1]; rows
        and columns of constant sites are zero.

    Raises:
        ValueError: if an argument is out of its range.

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
    x = check_images("images", images)
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
    if isinstance(kernel, GaussianKernel):
        by_features = taylor_cka(values, kernel.width, tolerance)
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


def _centered_gram(k: Tensor) -> Tensor:
    return k - k.mean(0) - k.mean(1, keepdim=True) + k.mean()
