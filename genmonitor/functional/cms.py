# SPDX-License-Identifier: Apache-2.0
"""Cosine mean similarity of two distributions, region by region of an image."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor._validation import check_positive_norms
from genmonitor.functional.kernel_means import KernelMeans, check_two_samples, kernel_means
from genmonitor.kernels import Kernel
from genmonitor.linalg.distances import LOSS
from genmonitor.partition import PixelPartition, region_key


def cosine_mean_similarity(
    fake: Tensor,
    real: Tensor,
    *,
    kernel: Kernel | None = None,
    partition: PixelPartition | None = None,
    block_size: int | None = None,
    unbiased: bool = False,
) -> Tensor | dict[str, Tensor]:
    """Cosine of the angle between two mean embeddings, ⟨μ_X, μ_Y⟩ / (‖μ_X‖ ‖μ_Y‖): 1 if the distributions agree.

    If the clusters of a partition are independent, the image's value is the product of the clusters' values (Theorem
    1). Their logarithms then show which region contributes most to the loss. The clusters must be jointly independent;
    a CKA of 0 for all pairs is not enough. A product far above the image's value indicates dependence: the difference
    then lies in the combination of regions, and no single region shows it.

    Args:
        fake: Images [N, C, H, W], or features [N, D] without a partition.
        real: Images [M, C, H, W] or features [M, D]; M need not be N.
        kernel: Kernel; None for a Gaussian. A gamma that is not given comes from `real`. All clusters share one gamma.
        partition: Clusters of pixels.
        block_size: Block size b of the paper's estimator, the mean over all pairs of a block of b fake and a block of b
            real samples. None for all samples at once.
        unbiased: True to leave the diagonal out of the squared norms. False, the default, is the paper's plug-in
            estimator, which stays in [0, 1] and has a bias of about 1/N. Values at different N, M or `block_size` are
            then not comparable.

    Returns:
        A float64 scalar; with a partition a dictionary of float64 scalars. `image` is the whole, `product` the product
        of all regions, `cluster_1`, … the clusters and `constant` label 0. `share_1`, …, `share_constant` are the
        regions' parts of the logarithm of the product, which sum to 1 (all are 0 if every value is 1). `violations` is
        the number of regions below the image, 0 if the clusters are independent (Corollary 1).

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If shapes differ, values are not finite, samples are fewer than 2 or do not fill whole blocks, or
            the partition is of another size.

    References:
        Gruber, Ziegler and Buettner, "Disentangling Mean Embeddings for Better Diagnostics of Image Generators",
            arXiv 2409.01314, Eq. 3, 4, 15 and 17.

    Example:
        >>> fake, real = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0], [1.0]])
        >>> cosine_mean_similarity(fake, real)
        tensor(0.9753, dtype=torch.float64)
    """
    fake, real, kernel = check_two_samples(fake, real, kernel, partition, block_size)
    means = kernel_means(fake, real, kernel, partition=partition, block_size=block_size)
    return cms_from_means(means.without_diagonal() if unbiased else means, partition)


def cms_from_means(means: KernelMeans, partition: PixelPartition | None) -> Tensor | dict[str, Tensor]:
    """Compute the value from the means of the kernel."""
    check_positive_norms(torch.cat([means.within_fake, means.within_real], 1))
    norms = means.within_fake[:, :, None] * means.within_real[:, None, :]
    values = (means.across / norms.sqrt()).mean((1, 2))
    if partition is None:
        return values[0]
    image, by_region = values[0], values[1:]
    names = list(partition.regions())
    # a value that underflows to 0 counts as a finite loss, so that shares are defined
    loss = by_region.clamp_min(torch.finfo(by_region.dtype).tiny).log().clamp_max(0).abs()
    total = loss.sum()
    shares = torch.where(total > 0, loss / total.where(total > 0, 1), 0)
    out = {"image": image, "product": by_region.prod()}
    out |= dict(zip(names, by_region, strict=True))
    out |= {region_key("share", name): share for name, share in zip(names, shares, strict=True)}
    # above by more than rounding, which may change each value by this
    return out | {"violations": (image > by_region + LOSS).sum().to(image)}
