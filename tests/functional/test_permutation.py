# SPDX-License-Identifier: Apache-2.0
from itertools import combinations

import numpy as np
import pytest
import torch
from _helpers import references as ref

from genmonitor.functional import two_sample_test
from genmonitor.functional.permutation import (
    BLOCKS,
    MAX_BLOCKS,
    Blocks,
    familywise_p_values,
    own_draws,
    random_splits,
    standardized,
)


def draw(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("n", "m", "size", "counts"),
    [
        (8, 8, 1, (8, 8)),
        (8, 3000, 1, (8, 992)),
        (99, 120, 1, (99, 120)),
        (100, 100, 2, (50, 50)),
        (537, 500, 10, (53, 50)),
        (100, 20_000, 2, (50, 950)),
    ],
)
def test_blocks_have_one_size_on_both_sides(n, m, size, counts):
    blocks = Blocks.of(draw(n, 2), draw(m, 2, seed=1), num_permutations=19)
    assert (blocks.size, blocks.counts) == (size, counts)
    assert size == max(1, min(n, m) // BLOCKS)
    assert blocks.splits.shape == (20, sum(counts))
    assert sum(counts) <= MAX_BLOCKS
    assert (blocks.splits.sum(1) == counts[0]).all()
    assert blocks.splits[0].tolist() == [True] * counts[0] + [False] * counts[1]
    for order, total in ((blocks.fake, n), (blocks.real, m)):
        assert order.sort().values.tolist() == list(range(total))


def test_blocks_follow_the_values_and_not_the_order_dtype_or_last_bits():
    fake, real = draw(200, 3).float(), draw(300, 3, seed=1).float()
    expected = Blocks.of(fake, real, 19, seed=5)
    turned = Blocks.of(fake.flip(0), real.roll(7, 0), 19, seed=5)
    noisy = Blocks.of(fake.double() + 1e-9 * draw(200, 3, seed=2), real.double(), 19, seed=5)
    for found in (turned, noisy):
        assert torch.equal(found.splits, expected.splits)
    torch.testing.assert_close(turned.take(fake.flip(0), real.roll(7, 0)), expected.take(fake, real), rtol=0, atol=0)
    torch.testing.assert_close(noisy.take(fake, real), expected.take(fake, real), rtol=0, atol=0)


def test_the_real_blocks_are_constant_for_a_run_and_the_splits_are_not():
    real, fakes = draw(300, 3), [draw(300, 3, seed=seed) for seed in (1, 2)]
    one, other = (Blocks.of(fake, real, 19, seed=5) for fake in fakes)
    assert torch.equal(one.real, other.real)
    assert not torch.equal(one.splits, other.splits)
    assert not torch.equal(one.real, Blocks.of(fakes[0], real, 19, seed=6).real)


def test_statistics_of_blocks_are_those_of_their_samples():
    fake, real = draw(107, 2), draw(160, 2, seed=1)
    blocks = Blocks.of(fake, real, 29)
    pool, n = blocks.take(fake, real).numpy(), blocks.counts[0] * blocks.size
    assert (pool[:n, None] == fake.numpy()).all(2).any(1).all()
    assert (pool[n:, None] == real.numpy()).all(2).any(1).all()
    splits = blocks.splits.numpy().repeat(blocks.size, 1)
    gaps = [pool[split].mean(0) - pool[~split].mean(0) for split in splits]
    found = blocks.weights("cpu").T @ blocks.means(torch.from_numpy(pool))
    np.testing.assert_allclose(found.numpy(), gaps, atol=1e-12)
    gram = ref.gram(pool, pool, 0.3)
    weights = [np.where(split, 1 / split.sum(), -1 / (~split).sum()) for split in splits]
    of_blocks = np.add.reduceat(
        np.add.reduceat(gram, range(0, len(pool), blocks.size), 0), range(0, len(pool), blocks.size), 1
    )
    found = blocks.quadratic_forms(torch.from_numpy(of_blocks)) / blocks.size**2
    np.testing.assert_allclose(found.numpy(), [w @ gram @ w for w in weights], atol=1e-12)


def test_p_values_are_ranks_with_one_level_for_all():
    statistics = standardized(draw(3, 40))
    expected = ref.familywise_p_values(statistics.numpy())
    np.testing.assert_allclose(familywise_p_values(statistics).numpy(), expected)
    nothing = torch.full((1, 40), -np.inf, dtype=torch.float64)
    with_nothing = familywise_p_values(torch.cat([statistics, nothing]))
    assert with_nothing.tolist() == [*familywise_p_values(statistics).tolist(), 1.0]
    assert standardized(torch.ones(2, 5)).tolist() == [[-np.inf] * 5] * 2


def test_splits_are_drawn_uniformly():
    """Each of the 20 splits of 6 into halves is drawn 500 ± 4 · 22 times out of 10,000."""
    counts = np.unique(random_splits(6, 3, 10_000, seed=0)[1:].numpy(), axis=0, return_counts=True)[1]
    assert len(counts) == len(list(combinations(range(6), 3)))
    assert abs(counts - 500).max() < 88


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(30, 30), (100, 140)])
def test_level_at_each_seed_where_one_direction_decides(n, m):
    """As binomial as chance: the squared deviations of 8 rates from 5 % sum to 31.8 with probability 1e-4."""
    generator, count, deviations = torch.Generator().manual_seed(0), 200, 0.0
    for seed in range(8):
        rejected = 0
        for _ in range(count):
            fake, real = (torch.randn(k, 1, generator=generator) for k in (n, m))
            blocks = Blocks.of(fake, real, 39, seed)
            gaps = (blocks.weights("cpu").T @ blocks.means(blocks.take(fake, real))).abs().T
            rejected += float(familywise_p_values(standardized(gaps))) <= 0.05
        deviations += (rejected - 0.05 * count) ** 2 / (0.05 * 0.95 * count)
    assert deviations < 31.8


def smooth(n, generator):
    return torch.randn(n, 1, 6, 6, generator=generator).cumsum(3)


def with_blanks(n, generator, noise=0.0):
    blank = noise * torch.randn(n, 1, 6, 6, generator=generator)
    return torch.where(torch.rand(n, 1, 1, 1, generator=generator) < 0.2, blank, smooth(n, generator))


def shapes(n, m, generator):
    """Draws of both sides from a few images of unequal frequency."""
    known, weights = smooth(40, generator), torch.rand(40, generator=generator)
    return [known[torch.multinomial(weights, count, True, generator=generator)] for count in (n, m)]


NULL = {
    "distinct": lambda g: (smooth(60, g), smooth(60, g)),
    "nine copies": lambda g: (smooth(60, g), smooth(14, g).repeat(9, 1, 1, 1)[torch.randperm(126, generator=g)[:60]]),
    "a class five times": lambda g: (smooth(60, g), torch.cat([smooth(30, g), smooth(6, g).repeat(5, 1, 1, 1)])),
    "few images": lambda g: (smooth(60, g), smooth(10, g).repeat(6, 1, 1, 1)),
    "discrete": lambda g: shapes(60, 60, g),
    "discrete, few generated": lambda g: shapes(12, 150, g),
    "blank tiles": lambda g: (with_blanks(60, g), with_blanks(60, g)),
    "nearly blank tiles": lambda g: (with_blanks(60, g, noise=1e-3), with_blanks(60, g)),
}


@pytest.mark.parametrize("name", NULL)
def test_the_level_holds_where_images_repeat(name):
    """Copies are no draws of their own, but repetitions of a discrete distribution and blank tiles are."""
    p = []
    for seed in range(60):
        fake, real = NULL[name](torch.Generator().manual_seed(seed))
        p.append(float(two_sample_test(fake, real, num_permutations=39, seed=seed)))
    assert sum(x <= 0.05 for x in p) <= 8  # of 60 with p = 0.05 by chance more in 1 of 200


@pytest.mark.parametrize(
    ("real", "known", "counted"),
    [
        (draw(20, 3, seed=1), None, 20),
        (draw(20, 3, seed=1).repeat(3, 1), None, 20),
        (draw(7, 3, seed=1).repeat(3, 1), None, 21),  # too few for a test
        (draw(20, 3, seed=1), draw(5, 3, seed=1), 20),
        (draw(20, 3, seed=1), draw(20, 3, seed=1)[4:9], 15),
        (draw(20, 3, seed=1), draw(20, 3, seed=1), 0),
        (draw(30, 3), None, 30),  # the generated ones
        (draw(30, 3)[:20].repeat(3, 1), None, 60),
        (torch.ones(20, 3), None, 20),
    ],
)
def test_copies_of_real_samples_are_no_draws(real, known, counted):
    for change in (lambda x: x, lambda x: x.float(), lambda x: x.flip(0)):
        some = None if known is None else change(known)
        assert int(own_draws(change(draw(30, 3)), change(real), some).sum()) == counted


def test_splits_that_rounding_alone_tells_apart_are_equal():
    rounding = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    statistics = 0.37 * (1 + torch.tensor([[1e-5], [1e-2]]) * rounding)
    statistics[:, 0] = 0.37 * torch.tensor([1 + 5e-5, 1 + 5e-2])
    assert familywise_p_values(standardized(statistics)[:1]).tolist() == [1.0]
    assert familywise_p_values(standardized(statistics)[1:]).tolist() == [0.001]
