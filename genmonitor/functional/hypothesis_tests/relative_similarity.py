# SPDX-License-Identifier: Apache-2.0
"""Test of relative similarity: finds the one of two sample sets that is closer to real samples, region by region."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from genmonitor._validation import check_bool, check_one_of
from genmonitor.functional.hypothesis_tests.mmd_influence import MMDInfluence, RealSide, checked_sides
from genmonitor.kernels import Kernel
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
        >>> from genmonitor.functional.hypothesis_tests.mmd_influence import mmd_influence
        >>> real = torch.arange(20.0)[:, None]
        >>> before, after = mmd_influence(real + 4, real), mmd_influence(real + 1, real)
        >>> relative_similarity_from_influences(after, before, paired=True)["image"].difference
        tensor(0.0564, dtype=torch.float64)
    """
    _check_arguments(paired, alternative, fake.fake.shape[1], other.fake.shape[1])
    check_comparable(fake, other)
    alive = fake.gamma > 0
    difference = torch.where(alive, other.mmd - fake.mmd, 0)
    # effect of float32 rounding on a mean of the kernel, the smallest possible standard error
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
