# SPDX-License-Identifier: Apache-2.0
"""Permutation tests: blocks of samples change sides, and all tested groups share one level.

The samples of each side are shuffled and cut into blocks of one size. Under the hypothesis the blocks are exchangeable,
so the level is exact, as for single samples. A statistic only needs sums over blocks, which are computed once.

References:
    Domingo-Enrich, Dwivedi and Mackey, "Compress Then Test: Powerful Kernel Testing in Near-linear Time", AISTATS 2023,
        arXiv 2301.05974.
    Westfall and Young, "Resampling-Based Multiple Testing", 1993.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.functional.pair_sums import PairSums
from genmonitor.linalg.chunking import rows_in_cache

LEVEL = 0.05
"""Level of a test and of a verdict, for all groups together."""
RARE = LEVEL / 50
"""Level of claims that alarm or are searched for beside the tests: copies, blocks, missing kinds of images."""
MIN_SAMPLES = 8
"""Smallest number of samples for an estimate of their spread."""
NUM_PERMUTATIONS = 999
"""Default number of permutations of every test: the smallest p-value is 0.001."""
BLOCKS = 50
"""Number of blocks of the smaller side; with fewer than twice as many samples, a block is one sample."""
MAX_BLOCKS = 1000
"""Largest number of blocks of both sides together; further ones of the larger side are not used."""
TIE = 1e-4
"""Difference of standardized statistics that count as equal, since rounding must not decide between equal splits."""


class Blocks(NamedTuple):
    """Samples of both sides in blocks of one size, and the splits of the blocks.

    Attributes:
        fake: Order of the fake samples [N], block after block; samples that do not fill a block come last.
        real: Order of the real samples [M]; those that are not tested come last.
        size: Number of samples in a block.
        splits: Blocks on the fake side of each split, bool [1 + permutations, fake + real blocks]; the observed split
            first.
    """

    fake: Tensor
    real: Tensor
    size: int
    splits: Tensor

    @classmethod
    def of(cls, fake: Tensor, real: Tensor, num_permutations: int = NUM_PERMUTATIONS, seed: int = 0) -> Blocks:
        """Cut both sides into blocks, and draw the splits.

        The blocks of a side depend only on its own values and the seed, so those of the real side are constant for a
        run. Which real samples that repeat are left out depends on both, see `own_draws`. So do the splits. If they
        depended on the seed alone, they would be fixed relative to the order of the values. The level of 5 % would then
        be between 2.5 and 8 %, depending on the seed.

        Args:
            fake: Images [N, C, H, W] or features [N, D].
            real: Real samples [M, ...].
            num_permutations: Number of random splits.
            seed: Seed of the blocks and the splits.

        Example:
            >>> blocks = Blocks.of(torch.randn(120, 3), torch.randn(1000, 3), num_permutations=99)
            >>> blocks.size, blocks.splits.shape, int(blocks.splits[0].sum())
            (2, torch.Size([100, 560]), 60)
        """
        (fake_order, fake_steps), (real_order, real_steps) = (_shuffled(x, seed) for x in (fake, real))
        tested = own_draws(fake, real)[real_order]
        real_order = torch.cat([real_order[tested], real_order[~tested]])
        sides = len(fake), int(tested.sum())
        size = max(1, min(sides) // BLOCKS)
        counts = [side // size for side in sides]
        smaller = min(counts)
        counts = [min(count, max(smaller, MAX_BLOCKS - smaller)) for count in counts]
        mixed = np.random.SeedSequence([seed, *sorted((fake_steps, real_steps))]).generate_state(1)
        splits = random_splits(sum(counts), counts[0], num_permutations, int(mixed[0]))
        return cls(fake_order, real_order, size, splits)

    @property
    def counts(self) -> tuple[int, int]:
        """Number of blocks of the fake and of the real side."""
        fake = int(self.splits[0].sum())
        return fake, self.splits.shape[1] - fake

    def weights(self, device: torch.device) -> Tensor:
        """Return the weight of each block in each split, 1 / fake or -1 / real blocks: float64 [blocks, splits].

        They sum to 0, so a constant added to a kernel changes nothing.
        """
        fake, real = self.counts
        return torch.tensor([-1 / real, 1 / fake], dtype=torch.float64)[self.splits.T.long()].to(device)

    def take(self, fake: Tensor, real: Tensor) -> Tensor:
        """Return the samples in blocks, block after block, the fake ones first: [blocks * size, ...]."""
        sides = zip((fake, real), (self.fake, self.real), self.counts, strict=True)
        return torch.cat([x.detach()[order[: count * self.size].to(x.device)] for x, order, count in sides])

    def means(self, values: Tensor) -> Tensor:
        """Return the mean of each block from the values of the samples of `take`: float64 [blocks, ...]."""
        return values.double().unflatten(0, (-1, self.size)).mean(1)

    def quadratic_forms(self, grams: Tensor) -> Tensor:
        """Return wᵀ K w for the weights w of each split.

        Args:
            grams: Sums over pairs of blocks [..., blocks, blocks], float64.

        Returns:
            [..., splits].
        """
        weights = self.weights(grams.device)
        return (weights * (grams @ weights)).sum(-2)


@lru_cache(maxsize=8)  # tests of the same images need the same ones; 1 MB each for 1000 samples
def random_splits(total: int, n: int, count: int, seed: int) -> Tensor:
    """Return the observed split, whose first n are fake, and splits drawn uniformly.

    Returns:
        True for the n on the fake side: bool [1 + count, total], not to be changed.
    """
    numbers = torch.rand(
        count, total, dtype=torch.float64, generator=torch.Generator().manual_seed(check_at_least("seed", seed, 0))
    )
    return torch.cat([torch.arange(total)[None], numbers.argsort(1)]) < n


def standardized(statistics: Tensor) -> Tensor:
    """Return statistics [..., S] in standard deviations over the splits; -inf where all splits are equal.

    Splits that differ by the rounding of float32 alone are equal, as where pixels vary in one sample alone.

    Example:
        >>> standardized(torch.tensor([[1.0, 3.0], [2.0, 2.0]]))
        tensor([[-1.,  1.],
                [-inf, -inf]])
    """
    spread, mean = torch.std_mean(statistics, -1, correction=0, keepdim=True)
    return ((statistics - mean) / spread).where(spread > TIE * mean.abs(), -math.inf)


def familywise_p_values(statistics: Tensor) -> Tensor:
    """Return the p-value of the first split for each group, at one level for all groups.

    Args:
        statistics: Statistics [groups, S], one column per split, the observed one first.

    Returns:
        P-values [groups], float64.
    """
    return (statistics.amax(0) >= statistics[:, :1] - TIE).double().mean(1)


def check_permutations(num_permutations: int, seed: int) -> None:
    """Refuse numbers that are invalid for any samples."""
    check_at_least("seed", seed, 0)
    least = round(1 / LEVEL) - 1
    if check_at_least("num_permutations", num_permutations, 1) < least:
        raise ValueError(
            f"Expected `num_permutations` of at least {least}, but got {num_permutations}: the smallest "
            f"p-value would be {1 / (num_permutations + 1):.3g}, above the level of {LEVEL:g}."
        )


def _shuffled(samples: Tensor, seed: int) -> tuple[Tensor, int]:
    """Return an order of the samples that depends on their values and the seed, and a number for the values.

    Neither depends on the given order of the samples, their dtype, or the last bits of their values.
    """
    position = _positions(samples)
    order = position.argsort()
    position = position[order].cpu()
    # 1/4096 of the mean's standard error changes the seed: little, but far more than rounding
    steps = position.mean() * (2**12 * len(position) ** 0.5 / position.std())
    number = int(steps.nan_to_num(0, 0, 0).round().remainder(2**32))
    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    shuffle = torch.randperm(len(order), generator=torch.Generator().manual_seed(own))
    return order[shuffle.to(order.device)], number


def _positions(samples: Tensor) -> Tensor:
    """Return each sample's position along a fixed random direction, float64 [n], equal for identical samples."""
    flat = samples.detach().flatten(1)
    direction = torch.randn(flat.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    direction = direction.to(flat.device)
    # row by row instead of as a product, whose rounding may depend on the position of a row
    return torch.cat([(some * direction).sum(1) for some in flat.split(rows_in_cache(flat))])


def own_draws(fake: Tensor, real: Tensor, known: Tensor | None = None) -> Tensor:
    """Return which real samples count as draws of their own in a test: all but repetitions, bool [M].

    A copy is no second draw: a test that takes it for one is too sure. Where generated samples repeat each other or
    real ones half as often, as discrete ones do, repetitions are draws. Samples of a single value, such as blank tiles,
    are draws in any case. If fewer than 8 different samples are left, all count.

    Args:
        fake: Images [N, C, H, W] or features [N, D].
        real: Real samples [M, ...].
        known: Other real samples [K, ...], which `real` may repeat too.

    Example:
        >>> real = torch.eye(9).repeat(2, 1)
        >>> own_draws(torch.rand(9, 9), real).sum(), own_draws(torch.eye(9), real).sum()
        (tensor(9), tensor(18))
    """
    sides = [real[:0] if known is None else known, real, fake]
    places = torch.cat([_positions(x).to(real.device) for x in sides])
    order = places.argsort(stable=True)
    # far below distances of different samples, far above rounding
    equal = places[order].diff() <= 1e-9 * places.std()
    repeats, repeated = torch.zeros(2, len(order), dtype=torch.bool, device=real.device)
    repeats[order[1:]] = equal
    repeated[order[:-1]] = equal
    of_real = slice(-len(fake) - len(real), -len(fake))
    flat = real.flatten(1)
    counted = ~repeats[of_real] | ((flat.amax(1) == flat.amin(1)) & (flat.shape[1] > 1))
    if known is None and int(counted.sum()) < MIN_SAMPLES:
        return torch.ones_like(counted)
    alike = (repeats | repeated).double()
    return counted | (alike[-len(fake) :].mean() >= alike[of_real].mean() / 2)


def split_statistics(within_fake: PairSums, across: PairSums, within_real: PairSums, blocks: Blocks) -> Tensor:
    """Return the discrepancy of each split's sides in each group: the largest standardized one over its kernels.

    Args:
        within_fake: Sums over pairs of the fake side, also for each two blocks.
        across: Sums over pairs of a fake and a real sample, for each two blocks.
        within_real: Sums over pairs of the real side, for each two blocks.
        blocks: Blocks with their splits.

    Returns:
        Statistics [G, splits], float64 on the CPU; -inf for a group in which nothing varies.
    """
    n, m = blocks.counts
    fake, both, real = within_fake.blocks[..., :n, :n], across.blocks[..., :n, :m], within_real.blocks[..., :m, :m]
    grams = torch.cat([torch.cat([fake, both], -1), torch.cat([both.mT, real], -1)], -2).cpu()
    return standardized(torch.stack([blocks.quadratic_forms(of_group) for of_group in grams])).amax(1)
