# SPDX-License-Identifier: Apache-2.0
"""Maximum mean discrepancy: the squared distance of two mean embeddings."""

from __future__ import annotations

from torch import Tensor

from genmonitor.functional.kernel_means import KernelMeans, check_two_samples, kernel_means
from genmonitor.kernels import Kernel


def maximum_mean_discrepancy(
    fake: Tensor, real: Tensor, *, kernel: Kernel | None = None, block_size: int | None = None, unbiased: bool = True
) -> Tensor:
    """Squared maximum mean discrepancy ‖μ_X - μ_Y‖² = mean k(x, x') + mean k(y, y') - 2 mean k(x, y).

    Args:
        fake: Images [N, C, H, W] or features [N, D].
        real: Images [M, C, H, W] or features [M, D]; M need not be N.
        kernel: Kernel; None for a Gaussian. A gamma that is not given comes from `real`.
        block_size: Block size b to average over all pairs of a block of b fake and b real samples; None for all samples
            at once.
        unbiased: True to leave the diagonals out; the value may then be slightly negative. False for the plug-in
            estimator, which is never negative and biased upwards by about 1/N.

    Returns:
        A float64 scalar, at most 2; 0 if the distributions agree.

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If shapes differ, values are not finite, or samples are fewer than 2 or do not fill whole blocks.

    References:
        Gretton et al., "A Kernel Two-Sample Test", JMLR 2012, Eq. 3 and 5.
        Gruber, Ziegler and Buettner, "Disentangling Mean Embeddings for Better Diagnostics of Image Generators",
            arXiv 2409.01314, Eq. 2 and 16.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> maximum_mean_discrepancy(x, x, unbiased=False)
        tensor(0., dtype=torch.float64)
    """
    fake, real, kernel = check_two_samples(fake, real, kernel, None, block_size)
    means = kernel_means(fake, real, kernel, block_size=block_size)
    return mmd_from_means(means.without_diagonal() if unbiased else means)


def mmd_from_means(means: KernelMeans) -> Tensor:
    """Compute the value of the whole from the means of the kernel."""
    return (means.within_fake[0, :, None] + means.within_real[0, None, :] - 2 * means.across[0]).mean()
