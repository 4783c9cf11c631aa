# SPDX-License-Identifier: Apache-2.0
"""Influence of each sample on the maximum mean discrepancy, region by region, for later comparisons."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor.functional.discrepancy import GroupKernels
from genmonitor.functional.kernel_means import check_sides
from genmonitor.functional.pair_sums import PairSums
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.kernels import Kernel
from genmonitor.kernels.base import check_kernel
from genmonitor.partition import PixelPartition


class MMDInfluence(NamedTuple):
    """Discrepancy of a sample set from real samples in R regions, with the influence of each sample; all float64.

    A named tuple of tensors and names: `_asdict()` goes into a `state_dict`, and `MMDInfluence(**state)` comes out.

    Attributes:
        regions: Names of the R regions, "image" first.
        mmd: Squared maximum mean discrepancy without bias [R].
        fake: Influence of each fake sample on it [R, N], of mean 0: the change of the value per unit of its weight.
        real: Influence of each real sample [R, M].
        second_order: Excess of the variance of the influences over that of the value [R], at least 0.
        real_mean: Mean of the kernel minus one over pairs of real samples [R], which identifies the real samples.
        gamma: Inverse mean squared distance of real samples [R], 0 if none vary; or the gamma of the given kernel.
        by_gamma: Value of each Gaussian of the kernel alone, by rising gamma [R, 4]; [R, 1] for a given kernel.
        by_chance: Standard deviation of each of these for N real samples in place of the fake ones.
    """

    regions: tuple[str, ...]
    mmd: Tensor
    fake: Tensor
    real: Tensor
    second_order: Tensor
    real_mean: Tensor
    gamma: Tensor
    by_gamma: Tensor
    by_chance: Tensor


def mmd_influence(
    fake: Tensor, real: Tensor, *, kernel: Kernel | None = None, partition: PixelPartition | None = None
) -> MMDInfluence:
    """Measure MMD² without bias for the image and each region, with the influence of each sample on it.

    Influences are those of the jackknife: (N - 1) times the loss of the value without a sample. They equal Hájek's
    projections up to a term of second order. `relative_similarity_from_influences` compares two sets by them.

    Args:
        fake: Images [N, C, H, W], or features [N, D] without a partition; N at least 8.
        real: Images [M, C, H, W] or features [M, D]; M at least 8, and need not be N.
        kernel: None for a mean of Gaussian kernels, with gamma = 0.5, 2, 8 and 32 over the mean squared distance of
            real samples in the region. Each is weighted by the inverse standard deviation of its MMD between real
            samples, of which up to 2000 are used. A given kernel serves all regions with its gamma; the median
            heuristic resolves a gamma that is not given.
        partition: Clusters of pixels.

    Returns:
        The values and influences of `image`, `cluster_1`, …, and `constant` for label 0. A region where real samples do
        not vary takes the image's gamma. If no real samples vary anywhere, all values are 0, unless a kernel is given.

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If shapes differ, values are not finite, samples are fewer than 8, the kernel takes no
            gamma, or the partition is of another size.

    References:
        Gretton et al., "A Kernel Two-Sample Test", JMLR 2012, Eq. 3.
        Bounliphone et al., "A Test of Relative Similarity For Model Selection in Generative Models", arXiv 1511.04581.

    Example:
        >>> real = torch.arange(8.0)[:, None]
        >>> found = mmd_influence(real + 1, real)
        >>> found.mmd, found.fake.shape
        (tensor([-0.1561], dtype=torch.float64), torch.Size([1, 8]))
    """
    real, fake = checked_sides({"real": real, "fake": fake}, kernel, partition)
    return RealSide.of(real, kernel, partition).influence(fake)


def checked_sides(sides: dict[str, Tensor], kernel: Kernel | None, partition: PixelPartition | None) -> list[Tensor]:
    """Check the sides of a comparison, the real one first, and give them one dtype."""
    check_kernel("kernel", kernel, with_gamma=True)
    return [side.detach() for side in check_sides(sides, partition, MIN_SAMPLES)]


class RealSide(NamedTuple):
    """Real samples that all sets are compared with, their kernels, and sums over pairs of them.

    Attributes:
        samples: Real samples [M, ...].
        kernels: Kernels of the image and its regions, with their mixture.
        sums: Sums over pairs of real samples.
    """

    samples: Tensor
    kernels: GroupKernels
    sums: PairSums

    @classmethod
    def of(cls, real: Tensor, kernel: Kernel | None, partition: PixelPartition | None) -> RealSide:
        """Prepare checked real samples with Gaussians of their own gammas or a given kernel."""
        with torch.no_grad():
            if kernel is None:
                kernels = GroupKernels.gaussian([real], partition)
            else:
                kernels = GroupKernels.single(kernel.resolved(real.flatten(1)), real, partition, mixture=True)
            kernels = kernels.balanced(real)
            return cls(real, kernels, kernels.sums(real))

    def influence(self, fake: Tensor) -> MMDInfluence:
        """Compare checked samples of the dtype of the real ones."""
        with torch.no_grad():
            within, across = self.kernels.sums(fake), self.kernels.sums(fake, self.samples)
            return influence_of(self.kernels, within, across, self.sums)


def influence_of(kernels: GroupKernels, fake: PairSums, across: PairSums, real: PairSums) -> MMDInfluence:
    """Compute values and influences from the sums within the fake side, across sides, and within the real side."""
    (n, m), spread = (across.rows.shape[1], across.columns.shape[1]), kernels.spread
    assert spread is not None  # of balanced kernels
    across_mean = across.rows.mean(1) / m
    fake_mean, real_mean = fake.rows.mean(1) / (n - 1), real.rows.mean(1) / (m - 1)
    return MMDInfluence(
        regions=kernels.names,
        mmd=fake_mean + real_mean - 2 * across_mean,
        fake=_influences(fake.rows / (n - 2), across.rows / m),
        real=_influences(real.rows / (m - 2), across.columns / n),
        second_order=2 * _second_order_within(fake) / ((n - 1) * (n - 2)) + 4 * _second_order(across) / (n * m),
        real_mean=real_mean,
        gamma=kernels.unit.to(real_mean),
        by_gamma=fake.totals / (n * (n - 1)) + real.totals / (m * (m - 1)) - across.totals * 2 / (n * m),
        by_chance=2**0.5 * spread.to(real_mean.device) * (1 / n + 1 / m),
    )


def _influences(within: Tensor, across: Tensor) -> Tensor:
    """Return influences [R, N] from the sum of each sample over its own side and its mean over the other side."""
    out = 2 * (within - across)
    return out - out.mean(1, keepdim=True)


def _second_order_within(sums: PairSums) -> Tensor:
    """Estimate the mean square of the centered kernel of two samples of a set [R]; 0 for negative estimates."""
    n, total = sums.rows.shape[1], sums.rows.sum(1)
    squares = sums.squares + total.square() / ((n - 1) * (n - 2)) - 2 / (n - 2) * sums.rows.square().sum(1)
    return squares.clamp_min(0) / (n * (n - 3))


def _second_order(sums: PairSums) -> Tensor:
    """Estimate the mean square of the kernel of samples of two sets, centered on both sides [R]; at least 0."""
    (n, m), total = (sums.rows.shape[1], sums.columns.shape[1]), sums.rows.sum(1)
    explained = sums.rows.square().sum(1) / m + sums.columns.square().sum(1) / n - total.square() / (n * m)
    return (sums.squares - explained).clamp_min(0) / ((n - 1) * (m - 1))
