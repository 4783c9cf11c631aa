# SPDX-License-Identifier: Apache-2.0
"""Test of relative similarity: finds the one of two sample sets that is closer to real samples, region by region.

The influence of each sample on the discrepancy suffices for later comparisons.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from genmonitor._validation import check_bool, check_one_of
from genmonitor.functional.discrepancy import GroupKernels
from genmonitor.functional.kernel_means import check_sides
from genmonitor.functional.pair_sums import PairSums
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.kernels import Kernel
from genmonitor.kernels.base import check_kernel
from genmonitor.partition import PixelPartition

Alternative = Literal["closer", "farther", "different"]


class RelativeSimilarity(NamedTuple):
    """Difference of the distances of two sets from real samples, in one region; float64 scalars.

    Attributes:
        difference: MMD² of the other set minus MMD² of the fake one, without bias; positive if `fake` is closer.
        standard_error: Standard error of the difference.
        p_value: Probability of such a difference, or a larger one, if both are equally close.
        p_value_adjusted: P-value adjusted for all regions together by Holm's method; for the image the p-value itself.
    """

    difference: Tensor
    standard_error: Tensor
    p_value: Tensor
    p_value_adjusted: Tensor


def relative_similarity_test(
    fake: Tensor,
    other: Tensor,
    real: Tensor,
    *,
    kernel: Kernel | None = None,
    partition: PixelPartition | None = None,
    paired: bool = False,
    alternative: Alternative = "closer",
) -> RelativeSimilarity | dict[str, RelativeSimilarity]:
    """Test if samples are closer to real ones than those of another model, MMD²(other, real) - MMD²(fake, real).

    The variance comes from influence values, the contribution of each sample to the difference. The influences of a
    real sample on both discrepancies are summed, and so are those of a pair. If a model equals the data, they vanish up
    to terms of second order, which a jackknife counts twice. For unpaired sets the excess is subtracted, which leaves
    no bias; paired sets keep it. The level then holds there too, with less than 5 % for 5 %.

    Args:
        fake: Images [N, C, H, W], or features [N, D] without a partition; N at least 8.
        other: Samples of the other model [K, …]; K at least 8.
        real: Real samples [M, …], M at least 8, that neither model was trained on.
        kernel: Same as in `mmd_influence`: None for a mean of Gaussians, with gammas of their own for each region.
        partition: Clusters of pixels.
        paired: True if sample i of both sets comes from the same seed or prompt; K is then N.
        alternative: Alternative hypothesis: `fake` is "closer" than `other`, "farther", or "different".

    Returns:
        Difference, standard error and p-values; with a partition a dictionary of them: `image`, `cluster_1`, …, and
        `constant` for label 0. If no real samples vary, the difference is 0 and the p-value 1, unless a kernel is
        given. P-values assume a normal distribution: those below 1/1000 are reliable with at least about 100 samples a
        side.

    Raises:
        TypeError: If a side is not a tensor of real numbers, or `paired` is neither True nor False.
        ValueError: If shapes differ, values are not finite, samples are fewer than 8 or paired sets differ in length,
            the kernel takes no gamma, or the partition has another size.

    References:
        Bounliphone et al., "A Test of Relative Similarity For Model Selection in Generative Models", arXiv 1511.04581.
        Efron and Stein, "The Jackknife Estimate of Variance", Annals of Statistics 1981.
        Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 1979.

    Example:
        >>> real = torch.randn(3, 100, 2, generator=torch.Generator().manual_seed(0))
        >>> found = relative_similarity_test(real[0] + 0.1, real[1] + 0.5, real[2])
        >>> bool(found.difference > 0), bool(found.p_value < 0.05)
        (True, True)
    """
    real, fake, other = checked_sides({"real": real, "fake": fake, "other": other}, kernel, partition)
    _check_arguments(paired, alternative, len(fake), len(other))
    side = RealSide.of(real, kernel, partition)
    influences = side.influence(fake), side.influence(other)
    found = relative_similarity_from_influences(*influences, paired=paired, alternative=alternative)
    return found["image"] if partition is None else found


def relative_similarity_from_influences(
    fake: MMDInfluence, other: MMDInfluence, *, paired: bool = False, alternative: Alternative = "closer"
) -> dict[str, RelativeSimilarity]:
    """Test which of two sets is closer to real samples from the results of `mmd_influence`.

    Args:
        fake: Influences of one set.
        other: Influences of the other set, against the same real samples in the same order, in the same regions.
        paired: Same as in `relative_similarity_test`.
        alternative: Same as in `relative_similarity_test`.

    Returns:
        As `relative_similarity_test` with a partition; without one, `image` alone.

    Raises:
        TypeError: If `paired` is neither True nor False.
        ValueError: If the sets were compared with different real samples, regions or gammas, or paired sets differ in
            length.

    Example:
        >>> from genmonitor.functional.relative_similarity import mmd_influence
        >>> real = torch.arange(20.0)[:, None]
        >>> before, after = mmd_influence(real + 4, real), mmd_influence(real + 1, real)
        >>> relative_similarity_from_influences(after, before, paired=True)["image"].difference
        tensor(0.0564, dtype=torch.float64)
    """
    _check_arguments(paired, alternative, fake.fake.shape[1], other.fake.shape[1])
    check_comparable(fake, other)
    alive = fake.gamma > 0
    difference = torch.where(alive, other.mmd - fake.mmd, 0)
    # float32 rounding of a mean of the kernel, 1e-7, is the smallest possible standard error
    error = (_variance(fake, other, paired) + 1e-7**2).sqrt().where(alive, 0)
    z = difference / error.where(alive, 1)
    tail = {"closer": -z, "farther": z, "different": -z.abs()}[alternative]
    p = torch.special.ndtr(tail) * (2 if alternative == "different" else 1)
    p = p.where(alive, 1)
    adjusted = torch.cat([p[:1], holm(p[1:], alive[1:])])
    columns = zip(difference, error, p, adjusted, strict=True)
    return {name: RelativeSimilarity(*values) for name, values in zip(fake.regions, columns, strict=True)}


def _variance(fake: MMDInfluence, other: MMDInfluence, paired: bool) -> Tensor:
    """Estimate the variance of the difference [R].

    The jackknife counts terms of second order twice (Efron and Stein). For paired sets this stays, since the covariance
    of two centered kernels is not in the influences. Otherwise `second_order` is subtracted. It is also the lower
    limit, since it is about the variance if there are no terms of first order.
    """
    jackknife = (other.real - fake.real).var(1) / fake.real.shape[1]
    if paired:
        return jackknife + (other.fake - fake.fake).var(1) / fake.fake.shape[1]
    for side in (fake, other):
        jackknife = jackknife + side.fake.var(1) / side.fake.shape[1]
    second_order = fake.second_order + other.second_order
    return torch.maximum(jackknife - second_order, second_order)


def holm(p: Tensor, tested: Tensor) -> Tensor:
    """Adjust p-values [R] for the number of tests, valid for any dependence between the regions.

    The joint normal distribution of influences (maxT) finds equally many faults, but does not resolve small p-values.
    """
    ordered, order = p.where(tested, 1).sort()
    left = (tested.sum() - torch.arange(len(p), device=p.device)).clamp_min(1)
    adjusted = (ordered * left).clamp_max(1)
    return torch.empty_like(p).scatter(0, order, adjusted.cummax(0).values if len(p) else adjusted)


def _check_arguments(paired: bool, alternative: str, n: int, k: int) -> None:
    """Refuse unknown alternatives, and pairs of sets of different lengths."""
    check_bool("paired", paired)
    check_one_of("alternative", alternative, get_args(Alternative))
    if paired and n != k:
        raise ValueError(
            f"Expected `fake` and `other` to hold equally many samples with `paired=True`, sample i of both from one "
            f"seed, but got {n} and {k}. Draw equally many of both, or use `paired=False`."
        )


def check_comparable(fake: MMDInfluence, other: MMDInfluence) -> None:
    """Refuse influences that were not measured against the same real samples, regions and gammas."""
    same = fake.regions == other.regions and fake.real.shape == other.real.shape
    same = same and torch.allclose(fake.gamma, other.gamma, rtol=1e-6, atol=0)
    # rounding on another device changes a mean by a tenth of this, other samples by much more
    same = same and torch.allclose(fake.real_mean, other.real_mean, rtol=0, atol=1e-6)
    if not same:
        raise ValueError(
            "Expected `fake` and `other` to be measured against the same real samples, with the same kernel and "
            f"partition, but got {_measured_by(fake)} and {_measured_by(other)}. Measure both again with "
            "`mmd_influence`."
        )


def _measured_by(side: MMDInfluence) -> str:
    gamma, mean = float(side.gamma[0]), float(side.real_mean[0])
    return f"{side.real.shape[1]} samples of {', '.join(side.regions)} by gamma {gamma:.6g}, mean {mean:.6g}"


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
