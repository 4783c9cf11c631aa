# SPDX-License-Identifier: Apache-2.0
"""Means of a kernel over all pairs of samples, for the whole image and every region of it in one pass.

Also the dispersion of one set: one minus such a mean, with the influence of each sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import check_at_least, check_features, check_min_samples, check_samples, check_whole_blocks
from genmonitor.functional.discrepancy import GroupKernels
from genmonitor.functional.pair_sums import PairSums
from genmonitor.kernels.base import Kernel, check_kernel
from genmonitor.kernels.builtin import GaussianKernel
from genmonitor.partition import PixelPartition


class KernelMeans(NamedTuple):
    """Means of a kernel over the pairs of two sets, in pairs of blocks; the whole comes before its regions.

    Attributes:
        across: Means over pairs of a fake and a real sample [1 + regions, A, B], float64.
        within_fake: Means over pairs within each fake block [1 + regions, A].
        within_real: Means over pairs within each real block [1 + regions, B].
        fake_block: Number of samples in a fake block.
        real_block: Number of samples in a real block.
    """

    across: Tensor
    within_fake: Tensor
    within_real: Tensor
    fake_block: int
    real_block: int

    def without_diagonal(self) -> KernelMeans:
        """Leave out the pairs of a sample with itself, whose kernel is 1, for squared norms without bias."""
        fake, real = self.fake_block, self.real_block
        within_fake = (self.within_fake * fake - 1) / (fake - 1)
        within_real = (self.within_real * real - 1) / (real - 1)
        return self._replace(within_fake=within_fake, within_real=within_real)

    @classmethod
    def of_sums(cls, within_fake: PairSums, across: PairSums, within_real: PairSums) -> KernelMeans:
        """Compute the means from the sums of the kernel that all groups share, see `GroupKernels.gamma`."""
        n, m = across.rows.shape[1], across.columns.shape[1]
        sums = (across.own, n * m), (within_fake.own, n * n), (within_real.own, m * m)
        means = [1 + own / pairs for own, pairs in sums if own is not None]
        return cls(means[0][:, None, None], means[1][:, None], means[2][:, None], n, m)


def kernel_means(
    fake: Tensor,
    real: Tensor,
    kernel: Kernel,
    *,
    partition: PixelPartition | None = None,
    block_size: int | None = None,
) -> KernelMeans:
    """Average a kernel over the pairs of samples, within each pair of blocks.

    Args:
        fake: Samples [N, ...], float32 or float64.
        real: Samples [M, ...].
        kernel: Kernel with its gamma set; it must factorize if there is a `partition`.
        partition: Regions of images; None for the whole alone.
        block_size: Number of samples per block, dividing N and M; None for one block.
    """
    kernels = GroupKernels.single(kernel, real, partition)
    sizes = block_size or len(fake), block_size or len(real)
    across = 1 + kernels.sums(fake, real, sizes).blocks[:, 0] / (sizes[0] * sizes[1])
    within = []
    for x, size in zip((fake, real), sizes, strict=True):
        totals = [kernels.sums(block).totals for block in x.split(size)]
        within.append(1 + torch.cat(totals, 1) / size**2)
    return KernelMeans(across, within[0], within[1], *sizes)


def check_two_samples(
    fake: Tensor, real: Tensor, kernel: Kernel | None, partition: PixelPartition | None, block_size: int | None
) -> tuple[Tensor, Tensor, Kernel]:
    """Check the two sides of a comparison and resolve their kernel.

    Returns:
        Both sides, in their shape, and the kernel with its gamma set from the real side.
    """
    real, fake = check_sides({"real": real, "fake": fake}, partition)
    check_estimator(kernel, partition, block_size)
    check_whole_blocks("fake", len(fake), block_size)
    check_whole_blocks("real", len(real), block_size)
    return fake, real, (kernel or GaussianKernel()).resolved(real.flatten(1))


def check_sides(samples: Mapping[str, Tensor], partition: PixelPartition | None, minimum: int = 2) -> list[Tensor]:
    """Check the sides of a comparison, which must have the shape of the first, and give them one dtype."""
    check_estimator(None, partition, None)
    sides: list[Tensor] = []
    for name, given in samples.items():
        sides.append(check_samples(name, given, tuple(sides[0].shape[1:]) if sides else None))
        check_min_samples(name, sides[-1], minimum)
    if partition is not None:
        partition.check_images(name, tuple(sides[-1].shape))
    wide = any(side.dtype == torch.float64 for side in sides)
    return [side.double() if wide else side for side in sides]


def check_estimator(kernel: Kernel | None, partition: PixelPartition | None, block_size: int | None) -> None:
    """Refuse arguments that are invalid for any samples."""
    check_kernel("kernel", kernel)
    if partition is not None and not isinstance(partition, PixelPartition):
        raise ValueError(
            f"Expected `partition` to be a PixelPartition, but got {type(partition).__name__}. Make one of labels, or "
            "read a file with genmonitor.partition.load_partition."
        )
    if partition is not None and kernel is not None and not kernel.factorizes:
        raise ValueError(
            "Expected `kernel` to be a GaussianKernel or LaplacianKernel with a `partition`, or your own that "
            f"factorizes as they do, but got {kernel!r}, which is not a product over pixels. The image's value would "
            "not be the product of its regions'."
        )
    if block_size is not None:
        check_at_least("block_size", block_size, 2)


class Dispersion(NamedTuple):
    """Dispersion of samples.

    Attributes:
        value: One minus the mean kernel of two different samples, float64; 0 if all are the same.
        influence: Influence of each sample [N], of mean 0: the change of the value per unit of its weight.
    """

    value: Tensor
    influence: Tensor

    @property
    def standard_error(self) -> Tensor:
        """Jackknife standard error of the value."""
        return (self.influence.var() / len(self.influence)).sqrt()


def kernel_dispersion(x: Tensor, kernel: Kernel) -> Dispersion:
    """Measure the dispersion of samples without bias, with the influence of each sample.

    The value is that of the kernel of two samples, 1 - E k(X, X'), a U-statistic: it does not grow with their number.
    With the cosine kernel it is half the mean squared distance of samples of length one. Influences are those of the
    jackknife: (N - 1) times the loss of the value without a sample, as in `mmd_influence`.

    Args:
        x: Samples [N, D]; N at least 3.
        kernel: Kernel with its gamma set.

    Returns:
        The value, in [0, 1] for a kernel in [0, 1] and up to 1 + 1 / (N - 1) for the cosine, and the influences.

    Raises:
        TypeError: If x is not a tensor of real numbers.
        ValueError: If the samples are fewer than 3, not finite, or the kernel has no gamma.

    References:
        Efron and Stein, "The Jackknife Estimate of Variance", Annals of Statistics 1981.

    Example:
        >>> from genmonitor.kernels import CosineKernel
        >>> found = kernel_dispersion(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), CosineKernel())
        >>> round(float(found.value), 4), [round(x, 4) for x in found.influence.tolist()]
        (0.6667, [-0.6667, -0.6667, 1.3333])
    """
    check_min_samples("x", check_features("x", x), 3)
    n = len(x)
    with torch.no_grad():
        rows = -GroupKernels.single(kernel, x, None, mixture=True).sums(x).rows[0]
    return Dispersion(rows.mean() / (n - 1), 2 * (rows - rows.mean()) / (n - 2))
