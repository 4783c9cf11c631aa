# SPDX-License-Identifier: Apache-2.0
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
from genmonitor.functional.discrepancy import VIEWS
from genmonitor.functional.permutation import NUM_PERMUTATIONS, Blocks
from genmonitor.functional.two_sample_test import pooled_statistics
from genmonitor.linalg import chunking

LEAST = 1 / (NUM_PERMUTATIONS + 1)
WIDTHS = (0.5, 2, 8, 32)
THIRDS = PixelPartition.grid((2, 6), 1, 3)


def draw(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def columns(partition: PixelPartition, channels: int) -> list[torch.Tensor]:
    return [partition.columns(label, channels) for label in partition.regions().values()]


def expected_statistics(fake, real, blocks, views):
    """From the formula: the splits of the blocks as splits of their samples."""
    pool = blocks.take(fake, real).numpy()
    splits = blocks.splits.numpy().repeat(blocks.size, 1)
    channels = pool.shape[1]
    found = {
        "structure": lambda: ref.split_statistics(
            pool.reshape(len(pool), -1), splits, [x.numpy() for x in columns(THIRDS, channels)], WIDTHS
        ),
        "texture": lambda: ref.texture_statistics(pool, splits, THIRDS.labels.numpy(), WIDTHS),
    }
    return np.max([found[view]() for view in views], 0)


@pytest.mark.parametrize("views", [("structure",), ("texture",), VIEWS])
@pytest.mark.parametrize(
    ("n", "m", "channels", "budget"),
    [(12, 15, 1, chunking.MEMORY_BUDGET), (12, 15, 1, 2000), (103, 120, 1, chunking.MEMORY_BUDGET)],
)
def test_twin(n, m, channels, budget, views, monkeypatch):
    fake, real = draw(n, channels, 2, 6).cumsum(3), draw(m, channels, 2, 6, seed=1).cumsum(3)
    blocks = Blocks.of(fake, real, 39, seed=3)
    expected = expected_statistics(fake, real, blocks, views)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    found = pooled_statistics(fake, real, blocks, THIRDS, views=views)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    p = two_sample_test(fake, real, partition=THIRDS, num_permutations=39, seed=3, views=views)
    assert float(p["image"]) == pytest.approx(ref.familywise_p_values(expected[:1])[0])
    assert [float(p[f"cluster_{c}"]) for c in (1, 2, 3)] == pytest.approx(ref.familywise_p_values(expected[1:]))
    in_float32 = pooled_statistics(fake.float(), real.float(), blocks, THIRDS, views=views)
    np.testing.assert_allclose(in_float32.numpy(), expected, atol=5e-3)


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
    assert float(two_sample_test(fake, real)) == float(two_sample_test(fake, real, views=["texture"])) == LEAST
    if fault != "checkerboard of 0.02":
        assert float(two_sample_test(fake, real, views=["structure"])) > 0.1


def photographs() -> torch.Tensor:
    """600 patches of 16×16 gray pixels of two photographs, in [0, 1]."""
    images = [torch.tensor(image).float().mean(2) / 255 for image in load_sample_images().images]
    patches = torch.stack([image.unfold(0, 16, 16).unfold(1, 16, 16).flatten(0, 1) for image in images]).flatten(0, 1)
    return patches[torch.randperm(len(patches), generator=torch.Generator().manual_seed(0))[:600], None]


@pytest.mark.nightly
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


@settings(max_examples=8, deadline=None, derandomize=True)
@given(n=st.integers(8, 20), m=st.integers(8, 20), seed=st.integers(0, 99))
def test_order_and_dtype_of_the_samples_change_nothing(n, m, seed):
    fake, real = draw(n, 1, 2, 6, seed=seed).float(), draw(m, 1, 2, 6, seed=seed + 1).float() + 0.3
    expected = two_sample_test(fake, real, partition=THIRDS, num_permutations=39)
    assert all(1 / 40 <= float(p) <= 1 for p in expected.values())
    for a, b in ((fake.flip(0), real.roll(3, 0)), (fake.double(), real.double())):
        assert two_sample_test(a, b, partition=THIRDS, num_permutations=39) == expected


def test_scale_and_shift_do_not_matter_to_the_statistics():
    x = draw(200, 1, 2, 6)
    blocks = Blocks.of(x[:90], x[90:], 19)
    expected = pooled_statistics(x[:90], x[90:], blocks, THIRDS)
    for other in (1000 * x, x + 5, 1e-6 * x):
        torch.testing.assert_close(pooled_statistics(other[:90], other[90:], blocks, THIRDS), expected)


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
    assert float(found["cluster_2"]) == float(expected["cluster_2"]) == LEAST
    assert float(two_sample_test(torch.ones(9, 3), torch.ones(8, 3))) == 1


def test_constant_region_that_a_generator_fills_is_found():
    fake, real = draw(30, 1, 2, 6), draw(30, 1, 2, 6, seed=1)
    real[..., :2] = 0
    partition = PixelPartition(torch.tensor([[0, 0, 1, 1, 2, 2]] * 2))
    assert float(two_sample_test(fake, real, partition=partition)["constant"]) == LEAST


@pytest.mark.parametrize("far", [1e6, 1e12])
def test_one_sample_far_out_does_not_blind_the_test(far):
    fake, real = draw(60, 5).float() + 3, draw(60, 5, seed=1).float()
    fake[0, 0] = far
    # the scale is the outlier's now, the kernel nearly linear: a shifted mean is seen still
    assert float(two_sample_test(fake[1:], real)) == LEAST
    assert LEAST <= float(two_sample_test(fake, real)) <= 1


def test_sides_of_unlike_sizes():
    p = [float(two_sample_test(draw(8, 5, seed=s), draw(200, 5, seed=s + 1))) for s in range(0, 40, 2)]
    assert sum(x <= 0.05 for x in p) <= 4  # of 20, one expected
    assert float(two_sample_test(draw(8, 5) + 2, draw(200, 5, seed=1))) == LEAST


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
