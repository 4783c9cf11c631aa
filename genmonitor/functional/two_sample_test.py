# SPDX-License-Identifier: Apache-2.0
"""Two-sample test: whether generated images differ from real ones by more than chance, region by region of an image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypedDict, Unpack, get_args, overload

import numpy as np
import torch
from torch import Tensor

from genmonitor._validation import check_at_least, check_positive
from genmonitor.kernels.means import check_sides
from genmonitor.kernels.views import SampleView, Structure, Texture, distance_blocks
from genmonitor.linalg.chunking import rows_in_cache
from genmonitor.linalg.distances import centered, squared_distances, squared_norms
from genmonitor.linalg.precision import full_precision
from genmonitor.linalg.whitening import Whitening
from genmonitor.partition import PixelPartition

View = Literal["structure", "texture"]
VIEWS: tuple[View, ...] = get_args(View)
GAMMAS = (0.5, 2.0, 8.0, 32.0)
LEVEL = 0.05
"""The level of a test and of a verdict, of all regions together."""
MIN_PERMUTATIONS = round(1 / LEVEL) - 1
MIN_SAMPLES = 8
"""Fewer samples than this say nothing about their own spread."""
NEAR = 0.1
"""Below this exponent of most pairs, 1 - exp(-exponent) keeps digits that exp(-exponent) loses."""
SEED_STEPS = 2**12
"""Parts of a mean's standard error that give other splits: many, yet far above what rounding moves a mean by."""
TIE = 1e-4
"""Standardized statistics this close count as equal: rounding must not decide between equal splits."""


class _Options(TypedDict, total=False):
    gammas: Sequence[float]
    views: Sequence[View]
    num_permutations: int
    seed: int


@overload
def two_sample_test(fake: Tensor, real: Tensor, *, partition: None = None, **options: Unpack[_Options]) -> Tensor: ...
@overload
def two_sample_test(
    fake: Tensor, real: Tensor, *, partition: PixelPartition, **options: Unpack[_Options]
) -> dict[str, Tensor]: ...
def two_sample_test(
    fake: Tensor,
    real: Tensor,
    *,
    partition: PixelPartition | None = None,
    gammas: Sequence[float] = GAMMAS,
    views: Sequence[View] = VIEWS,
    num_permutations: int = 199,
    seed: int = 0,
) -> Tensor | dict[str, Tensor]:
    """p-value of the hypothesis that both sides come from one distribution, by permuting which side a sample is on.

    The statistic is the squared maximum mean discrepancy by Gaussian kernels of several gammas in two views of the
    images, each standardized over the permutations; the largest of them counts (Schrab et al.). Pixels show structure:
    where things are and how bright. Whitened images show texture, such as blur and noise, which distances of pixels
    hardly see. Every region has gammas of its own, multiples of one over its mean squared distance in the pool of both
    sides, and a texture that no pixel outside it changes. The regions share one level: a region's p-value counts the
    permutations in which *any* region lies as far out (Westfall and Young), so that real images in place of generated
    ones have some region with p <= 0.05 in at most 5 % of the evaluations. That holds at any seed and any number of
    samples and permutations, if the two sides are exchangeable under the hypothesis: real images that the generator was
    trained on are not, and the p-value is then only a guide.

    Args:
        fake: images [N, C, H, W], or features [N, D] without a partition; N at least 8.
        real: images [M, C, H, W] or features [M, D]; M need not be N, but is at least 8 too.
        partition: which cluster each pixel belongs to.
        gammas: positive, in units of one over a region's mean squared distance: its kernels are exp(-g ‖x - y‖² / mean
            ‖x - y‖²).
        views: of images, one or both: "structure" is the pixels as they are, "texture" the images whitened, so that
            every spatial frequency varies alike in the pool. Features have the structure alone.
        num_permutations: random splits that the observed one is compared with, B >= 19. The smallest p-value is
            1 / (B + 1), and its standard deviation over the seeds is at most 1 / (2 √B).
        seed: of the splits, which the samples decide too: other samples are split in other ways, the same ones in the
            same, whatever their order and the device.

    Returns:
        A float64 scalar in [1 / (B + 1), 1]; with a partition a dictionary of them: `image`, tested by itself, and
        `cluster_1`, …, `constant`, tested together. A region in which all samples agree has p = 1.

    Raises:
        TypeError: if a side is no tensor of real numbers.
        ValueError: if shapes differ, values are not finite, samples are fewer than 8, an argument is out of its range,
            or the partition is of another size.

    References:
        Schrab et al., "MMD Aggregated Two-Sample Test", JMLR 2023, arXiv 2110.15073.
        Westfall and Young, "Resampling-Based Multiple Testing", 1993.

    Example:
        >>> real = torch.linspace(0, 1, 32)[:, None]
        >>> two_sample_test(real + 0.02, real), two_sample_test(real + 0.5, real)
        (tensor(0.9900, dtype=torch.float64), tensor(0.0050, dtype=torch.float64))
    """
    check_test_arguments(gammas, num_permutations, seed, views)
    real, fake = check_sides({"real": real, "fake": fake}, partition, MIN_SAMPLES)
    pool, labels, seed = pooled(fake, real, seed)
    splits = torch.cat([labels[None], random_splits(len(labels), len(fake), num_permutations, seed)])
    statistics = view_statistics(pool, splits, partition, gammas, views)
    image = familywise_p_values(statistics[:1])[0]
    if partition is None:
        return image
    return {"image": image} | dict(zip(partition.regions(), familywise_p_values(statistics[1:]), strict=True))


class Pool(NamedTuple):
    """The samples of both sides, in an order that only their values decide.

    Attributes:
        fake: images [N, C, H, W] or features [N, D].
        real: [M, ...].
        order: [N + M].
    """

    fake: Tensor
    real: Tensor
    order: Tensor

    def take(self) -> Tensor:
        """Return all samples [N + M, ...]."""
        return torch.cat([self.fake, self.real])[self.order]


def pooled(fake: Tensor, real: Tensor, seed: int) -> tuple[Pool, Tensor, int]:
    """Return the samples of both sides in an order that only their values decide, and a seed that depends on them.

    The splits are then the same ones for any order of the samples, and for any dtype that holds them. At one seed for
    all samples they would stand fixed relative to the order: where this decides the statistic, as in one dimension,
    each seed would have a level of its own, 2.5 to 8 % for 5 %.

    Returns:
        The samples; which are fake, bool [N + M]; the seed.
    """
    fake, real = fake.detach(), real.detach()
    direction = torch.randn(fake[0].numel(), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    direction = direction.to(fake.device)
    # row by row rather than as a product, whose rounding may depend on where a row stands
    sides = [some for x in (fake.flatten(1), real.flatten(1)) for some in x.split(rows_in_cache(x))]
    position = torch.cat([(some * direction).sum(1) for some in sides])
    order = position.argsort()
    position, labels = position[order].cpu(), (order < len(fake)).cpu()
    means = torch.stack([position[labels].mean(), position[~labels].mean()])
    steps = (means * (SEED_STEPS * len(position) ** 0.5 / position.std())).nan_to_num(0, 0, 0).round().remainder(2**32)
    mixed = np.random.SeedSequence([seed, *sorted(map(int, steps.tolist()))]).generate_state(1)
    return Pool(fake, real, order), labels, int(mixed[0])


def random_splits(total: int, n: int, count: int, seed: int) -> Tensor:
    """Return splits drawn uniformly, true for the n samples that they call fake: bool [count, total] on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    out = torch.zeros(count, total, dtype=torch.bool)
    for split in out:
        split[torch.randperm(total, generator=generator)[:n]] = True
    return out


def view_statistics(
    pool: Pool, splits: Tensor, partition: PixelPartition | None, gammas: Sequence[float], views: Sequence[View]
) -> Tensor:
    """Return the largest of `split_statistics` over views of images, or of features; the whole before its regions."""
    structure = split_statistics(pool, Structure.of(pool.fake, partition), splits, gammas)[partition is None :]
    if pool.fake.ndim != 4 or "texture" not in views:
        return structure
    whitening = Whitening.of(pool.fake, pool.real)
    texture = split_statistics(pool, Texture.of(whitening, None), splits, gammas)[1:]
    if partition is not None:
        of_regions = split_statistics(pool, Texture.of(whitening, partition), splits, gammas)[1:]
        texture = torch.cat([texture, of_regions])
    texture = texture.masked_fill(structure == -math.inf, -math.inf)
    return torch.maximum(texture, structure) if "structure" in views else texture


def split_statistics(pool: Pool, view: SampleView, splits: Tensor, gammas: Sequence[float]) -> Tensor:
    """Return how far apart each split's sides are: the largest standardized discrepancy over the gammas.

    Args:
        pool: the samples.
        view: what is compared of them, in regions.
        splits: which samples are fake, bool [S, N], as many in each.
        gammas: in units of one over each region's mean squared distance.

    Returns:
        float64 [1 + regions, S] on the CPU, all regions together first; where nothing varies, -inf throughout.
    """
    n, fake = splits.shape[1], int(splits[0].sum())
    # the weights of a split sum to 0, so that a constant added to the kernel changes nothing
    weights = torch.tensor([-1 / (n - fake), 1 / fake], dtype=torch.float64)[splits.T.long()].to(pool.fake.device)
    total = weights.new_zeros(1 + len(view), len(gammas), len(splits))
    scales = [Scale()] * len(view)

    def pieces(region: int) -> Iterator[tuple[Tensor, Tensor]]:
        scales[region] = Scale()
        for sides in view.pieces(region, pool.fake, pool.real):
            near = _near_zero(torch.cat(sides)[pool.order])
            scales[region].add(near)
            yield near, near

    with full_precision():
        for region, start, stop, distances in distance_blocks(len(view), pieces, (n, n), squared_distances, upper=True):
            if region and len(view) == 1:
                continue  # the same as all regions together
            added = scales[region - 1 : region] if region else scales
            mean, median = sum(scale.mean for scale in added), sum(scale.median() for scale in added)
            distances[:, : stop - start].fill_diagonal_(0)
            for row, g in zip(total[region], gammas if mean else (), strict=False):
                row += _quadratic_form(distances, g / mean, weights[start:], near=g * median < NEAR * mean)
    if len(view) == 1:
        total[1] = total[0]
    constant = torch.tensor([not sum(scale.mean for scale in scales), *(not scale.mean for scale in scales)])
    return standardized(total.cpu()).amax(1).masked_fill(constant[:, None], -math.inf)


class Scale:
    """The mean and about the median squared distance of samples whose mean is near zero, from some values at a time."""

    def __init__(self) -> None:
        self.mean, self._steps = 0.0, torch.zeros(1, dtype=torch.float64)

    def add(self, near: Tensor) -> None:
        """Add some values of all samples [N, some]."""
        self.mean += float(2 * squared_norms(near).double().sum() / (len(near) - 1))
        self._steps = self._steps + squared_norms(near[:257].double().diff(dim=0)).cpu()

    def median(self) -> float:
        """Return the median squared distance of some neighbors."""
        return float(self._steps.median())


def standardized(statistics: Tensor) -> Tensor:
    """Return statistics [..., S] in standard deviations over the splits, 0 where all agree."""
    spread = statistics.std(-1, correction=0, keepdim=True)
    return (statistics - statistics.mean(-1, keepdim=True)) / spread.where(spread > 0, math.inf)


def familywise_p_values(statistics: Tensor) -> Tensor:
    """Return the p-value of the first split for each region, with one level for all of them.

    Args:
        statistics: [regions, S], one column per split, the observed one first.

    Returns:
        float64 [regions].
    """
    return (statistics.amax(0) >= statistics[:, :1] - TIE).double().mean(1)


def check_test_arguments(
    gammas: Sequence[float], num_permutations: int, seed: int, views: Sequence[View] = VIEWS
) -> None:
    """Refuse arguments that no samples could make right."""
    if isinstance(views, str) or not isinstance(views, Sequence) or not views or not set(views) <= set(VIEWS):
        raise ValueError(f"Expected `views` as one or more of {', '.join(map(repr, VIEWS))}, but got {views!r}.")
    if isinstance(gammas, str) or not isinstance(gammas, Sequence) or not len(gammas):
        raise ValueError(f"Expected `gammas` as one or more numbers above 0, but got {gammas!r}.")
    for value in gammas:
        check_positive("gammas", value)
    check_at_least("seed", seed, 0)
    if check_at_least("num_permutations", num_permutations, 1) < MIN_PERMUTATIONS:
        raise ValueError(
            f"Expected `num_permutations` of at least {MIN_PERMUTATIONS}, but got {num_permutations}: the smallest "
            f"p-value would be {1 / (num_permutations + 1):.3g}, above the level of {LEVEL:g}."
        )


def _near_zero(samples: Tensor) -> Tensor:
    """Shift samples to where their dtype, or float64, holds their distances; equal ones to zero."""
    if bool((samples == samples[0]).all()):
        return torch.zeros_like(samples)
    return centered(samples, samples)[0]


def _quadratic_form(distances: Tensor, gamma: float, weights: Tensor, near: bool) -> Tensor:
    """Return what some rows and the columns that mirror them add to wᵀ K w, for each column w of the weights [S].

    Args:
        distances: [R, N], of the first R samples to all N.
        gamma: of the kernel.
        weights: [N, S].
        near: whether most pairs are close for this gamma: the kernel less 1 then keeps the digits, else the kernel.
    """
    rows = len(distances)
    exponents = -gamma * distances
    gram = exponents.expm1_() if near else exponents.exp_()
    gram[:, :rows].fill_diagonal_(0)
    gram[:, :rows] /= 2  # counted by its own rows and by its own columns
    some = weights.to(gram)
    return 2 * (some[:rows] * (gram @ some)).sum(0, dtype=torch.float64)
