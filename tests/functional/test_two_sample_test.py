# SPDX-License-Identifier: Apache-2.0
from itertools import combinations

import numpy as np
import pytest
import torch
from _helpers import references as ref
from _helpers.golden import digits
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_sample_images

from genmonitor import PixelPartition
from genmonitor.functional import two_sample_test
from genmonitor.functional.two_sample_test import (
    VIEWS,
    Pool,
    familywise_p_values,
    pooled,
    random_splits,
    split_statistics,
    view_statistics,
)
from genmonitor.kernels.views import Structure
from genmonitor.linalg import chunking

WIDTHS = (0.5, 2, 8, 32)
THIRDS = PixelPartition.grid((2, 6), 1, 3)


def draw(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def columns(partition: PixelPartition, channels: int) -> list[torch.Tensor]:
    return [partition.columns(label, channels) for label in partition.regions().values()]


def all_splits(total: int, n: int) -> torch.Tensor:
    splits = torch.zeros(len(list(combinations(range(total), n))), total, dtype=torch.bool)
    for split, chosen in zip(splits, combinations(range(total), n), strict=True):
        split[list(chosen)] = True
    return splits


def pool_of(images):
    return Pool(images[:0], images, torch.arange(len(images)))


def statistics_of(pool, splits):
    """Return the statistics of the whole and of each third."""
    return split_statistics(pool, Structure(columns(THIRDS, pool.real[0].numel() // 12)), splits, WIDTHS)


@pytest.mark.parametrize("budget", [chunking.MEMORY_BUDGET, 2000, 1])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-3), (torch.float64, 1e-8)])
@pytest.mark.parametrize("channels", [1, 3])
def test_twin(channels, dtype, error, budget, monkeypatch):
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    images = draw(25, channels, 2, 6)
    splits = random_splits(25, 10, 30, seed=1)
    regions = columns(THIRDS, channels)
    found = statistics_of(pool_of(images.to(dtype)), splits)
    expected = ref.split_statistics(images.flatten(1).numpy(), splits.numpy(), [r.numpy() for r in regions], WIDTHS)
    np.testing.assert_allclose(found.numpy(), expected, atol=error)
    np.testing.assert_allclose(familywise_p_values(found[1:]).numpy(), ref.familywise_p_values(expected[1:]))


def test_p_values_are_of_the_statistics_of_random_splits():
    fake, real = draw(12, 1, 2, 6), draw(15, 1, 2, 6, seed=1)
    pool, labels, seed = pooled(fake, real, seed=3)
    samples = pool.take().flatten(1)
    splits = torch.cat([labels[None], random_splits(27, 12, 39, seed)])
    structure = ref.split_statistics(samples.numpy(), splits.numpy(), [r.numpy() for r in columns(THIRDS, 1)], WIDTHS)
    texture = ref.texture_statistics(samples.view(-1, 1, 2, 6).numpy(), splits.numpy(), THIRDS.labels.numpy(), WIDTHS)
    views = {("structure",): structure, ("texture",): texture, VIEWS: np.maximum(structure, texture)}
    for names, expected in views.items():
        found = two_sample_test(fake, real, partition=THIRDS, num_permutations=39, seed=3, views=names)
        assert float(found["image"]) == pytest.approx(ref.familywise_p_values(expected[:1])[0])
        assert [float(found[f"cluster_{c}"]) for c in (1, 2, 3)] == pytest.approx(ref.familywise_p_values(expected[1:]))


@pytest.mark.parametrize("budget", [chunking.MEMORY_BUDGET, 1])
@pytest.mark.parametrize("channels", [1, 3])
def test_texture_twin(channels, budget, monkeypatch):
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    images, splits = draw(25, channels, 2, 6).cumsum(3), random_splits(25, 10, 30, seed=1)
    found = view_statistics(pool_of(images), splits, THIRDS, WIDTHS, ["texture"])
    expected = ref.texture_statistics(images.numpy(), splits.numpy(), THIRDS.labels.numpy(), WIDTHS)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("fault", ["half a blur", "noise of 0.02", "checkerboard of 0.02"])
def test_texture_finds_what_pixels_hide(fault):
    images = photographs()
    fake, real = images[:300], images[300:]
    board = (torch.arange(16)[:, None] + torch.arange(16)) % 2 - 0.5
    fake = {
        "half a blur": (fake + torch.nn.functional.avg_pool2d(fake, 3, 1, 1, count_include_pad=False)) / 2,
        "noise of 0.02": fake + 0.02 * draw(300, 1, 16, 16).float(),
        "checkerboard of 0.02": fake + 0.04 * board,
    }[fault]
    assert float(two_sample_test(fake, real)) == float(two_sample_test(fake, real, views=["texture"])) == 1 / 200
    if fault != "checkerboard of 0.02":
        assert float(two_sample_test(fake, real, views=["structure"])) > 0.1


def photographs() -> torch.Tensor:
    """600 patches of 16×16 gray pixels of two photographs, in [0, 1]."""
    images = [torch.tensor(image).float().mean(2) / 255 for image in load_sample_images().images]
    patches = torch.stack([image.unfold(0, 16, 16).unfold(1, 16, 16).flatten(0, 1) for image in images]).flatten(0, 1)
    return patches[torch.randperm(len(patches), generator=torch.Generator().manual_seed(0))[:600], None]


@pytest.mark.slow
def test_level_is_exact_over_all_12870_splits_of_eight_and_eight():
    """Each split is as likely to be the observed one under the hypothesis: at most a share of a may have p <= a."""
    samples, splits = draw(16, 12), all_splits(16, 8)
    assert len(splits) == 12870
    statistics = statistics_of(pool_of(samples), splits)
    image, of_any = statistics[0], statistics[1:].amax(0)
    for largest in (image, of_any):
        p = (largest[None, :] >= largest[:, None] - 1e-4).double().mean(1)
        for level in (0.001, 0.01, 0.05, 0.1, 0.5):
            share = float((p <= level).double().mean())
            assert share <= level
            assert share >= level - 0.002  # p-values are multiples of 2 / 12870, a little larger where splits tie


@pytest.mark.slow
def test_level_by_simulation():
    """400 evaluations without a difference: 20 rejections expected, standard deviation 4.4, three of them allowed."""
    generator, rejected, rejected_image = torch.Generator().manual_seed(0), 0, 0
    for seed in range(400):
        x = torch.randn(24, 1, 2, 6, generator=generator)
        found = two_sample_test(x[:10], x[10:], partition=THIRDS, num_permutations=39, seed=seed)
        rejected += min(float(found[name]) for name in THIRDS.regions()) <= 0.05
        rejected_image += float(found["image"]) <= 0.05
    assert 7 <= rejected <= 33
    assert 7 <= rejected_image <= 33


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["drawn each time", "the same"])
def test_the_level_holds_at_each_seed_where_one_direction_decides(pool):
    """As binomial as chance: the squared deviations of 8 rates from 5 % sum to 31.8 with probability 1e-4."""
    generator, count, deviations = torch.Generator().manual_seed(0), 200, 0.0
    x = torch.randn(60, 1, generator=generator)
    for seed in range(8):
        rejected = 0
        for _ in range(count):
            x = torch.randn(60, 1, generator=generator) if pool != "the same" else x
            x = x[torch.randperm(60, generator=generator)]
            rejected += float(two_sample_test(x[:30], x[30:], num_permutations=39, seed=seed)) <= 0.05
        deviations += (rejected - 0.05 * count) ** 2 / (0.05 * 0.95 * count)
    assert deviations < 31.8


def test_rounding_of_the_samples_leaves_the_splits():
    """A generator's images differ in their last bits by the batch size and the device that they are made with."""
    fake, real = draw(200, 12), draw(220, 12, seed=1)
    seeds = {pooled(fake + 1e-7 * draw(200, 12, seed=s), real, seed=5)[2] for s in range(2, 6)}
    assert seeds == {pooled(fake, real, seed=5)[2]}
    others = {pooled(fake, real, seed=6)[2], pooled(fake[:199], real, seed=5)[2], pooled(fake + 0.01, real, seed=5)[2]}
    assert len(others - seeds) == 3


@pytest.mark.parametrize("fault", ["noise", "blur", "shift"])
def test_names_the_faulty_region_and_no_other(fault):
    images = digits()[torch.randperm(1797, generator=torch.Generator().manual_seed(1))]
    partition = PixelPartition.grid((8, 8), 2, 2)
    fake, real = images[:300].clone(), images[300:600]
    corner = fake[..., 4:, 4:]
    fake[..., 4:, 4:] = {
        "noise": corner + 0.3 * images.std() * torch.randn(corner.shape, generator=torch.Generator().manual_seed(0)),
        "blur": torch.nn.functional.avg_pool2d(fake, 3, 1, 1)[..., 4:, 4:],
        "shift": corner + 0.3 * images.std(),
    }[fault]
    p = two_sample_test(fake, real, partition=partition)
    faulty = int(partition.labels[-1, -1])
    assert {name: float(p[name]) <= 0.05 for name in partition.regions()} == {
        name: label == faulty for name, label in partition.regions().items()
    }


@settings(max_examples=20, deadline=None, derandomize=True)
@given(n=st.integers(8, 20), m=st.integers(8, 20), seed=st.integers(0, 99))
def test_order_and_dtype_of_the_samples_change_nothing(n, m, seed):
    fake, real = draw(n, 1, 2, 6, seed=seed).float(), draw(m, 1, 2, 6, seed=seed + 1).float() + 0.3
    expected = two_sample_test(fake, real, partition=THIRDS, num_permutations=39)
    assert all(1 / 40 <= float(p) <= 1 for p in expected.values())
    for a, b in ((fake.flip(0), real.roll(3, 0)), (fake.double(), real.double())):
        assert two_sample_test(a, b, partition=THIRDS, num_permutations=39) == expected


def test_scale_and_shift_do_not_matter_to_the_statistics():
    x, splits = draw(20, 12), random_splits(20, 9, 10, seed=0)
    expected = statistics_of(pool_of(x), splits)
    for other in (1000 * x, x + 5, 1e-6 * x):
        torch.testing.assert_close(statistics_of(pool_of(other), splits), expected)


def test_blocks_of_rows_give_the_same(monkeypatch):
    fake, real = draw(300, 12), draw(310, 12, seed=1)
    pool, labels, _ = pooled(fake, real, seed=0)
    splits = torch.cat([labels[None], random_splits(610, 300, 20, seed=0)])
    expected = statistics_of(pool, splits)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 100_000)
    torch.testing.assert_close(statistics_of(pool, splits), expected)


def test_equal_samples_on_both_sides_do_not_differ():
    x = draw(30, 1, 2, 6)
    assert all(float(p) > 0.9 for p in two_sample_test(x, x, partition=THIRDS).values())


def test_region_without_variance_has_p_one_and_costs_the_others_nothing():
    fake, real = draw(30, 1, 2, 6), draw(30, 1, 2, 6, seed=1)
    fake[..., 2:4] += 1
    labels = torch.tensor([[1, 1, 2, 2, 3, 3]] * 2)
    expected = two_sample_test(fake[..., :4], real[..., :4], partition=PixelPartition(labels[:, :4]))
    fake[..., 4:] = real[..., 4:] = 0.1
    found = two_sample_test(fake, real, partition=PixelPartition(labels))
    assert float(found["cluster_3"]) == 1
    assert float(found["cluster_2"]) == float(expected["cluster_2"]) == 1 / 200
    assert float(two_sample_test(torch.ones(9, 3), torch.ones(8, 3))) == 1


def test_constant_region_that_a_generator_fills_is_found():
    fake, real = draw(30, 1, 2, 6), draw(30, 1, 2, 6, seed=1)
    real[..., :2] = 0
    partition = PixelPartition(torch.tensor([[0, 0, 1, 1, 2, 2]] * 2))
    assert float(two_sample_test(fake, real, partition=partition)["constant"]) == 1 / 200


@pytest.mark.parametrize("far", [1e6, 1e12])
def test_one_sample_far_out_does_not_blind_the_test(far):
    fake, real = draw(60, 5).float() + 3, draw(60, 5, seed=1).float()
    fake[0, 0] = far
    # the scale is the outlier's now, the kernel nearly linear: a shifted mean is seen still
    assert float(two_sample_test(fake[1:], real)) == 1 / 200
    assert 1 / 200 <= float(two_sample_test(fake, real)) <= 1


def test_sides_of_unlike_sizes():
    p = [float(two_sample_test(draw(8, 5, seed=s), draw(200, 5, seed=s + 1))) for s in range(0, 40, 2)]
    assert sum(x <= 0.05 for x in p) <= 4  # of 20, one expected
    assert float(two_sample_test(draw(8, 5) + 2, draw(200, 5, seed=1))) == 1 / 200


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16])
def test_other_dtypes_are_promoted(dtype):
    fake, real = (100 + 20 * draw(20, 1, 2, 6, seed=s).clamp(-4, 4) for s in (0, 1))
    found = two_sample_test(fake.to(dtype), real.to(dtype), partition=THIRDS)
    expected = two_sample_test(
        *((x / 255 if dtype == torch.uint8 else x).float() for x in (fake.to(dtype), real.to(dtype))),
        partition=THIRDS,
    )
    assert found == expected


def test_one_region_alone_is_the_image():
    fake, real = draw(20, 2, 2, 6), draw(20, 2, 2, 6, seed=1)
    found = two_sample_test(fake, real, partition=PixelPartition.grid((2, 6), 1, 1))
    assert float(found["image"]) == pytest.approx(float(two_sample_test(fake, real)), abs=0.1)
    assert found.keys() == {"image", "cluster_1"}
