# SPDX-License-Identifier: Apache-2.0
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from _helpers import references as ref
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor.functional import discrepancy_map
from genmonitor.functional.discrepancy_map import cell_discrepancies
from genmonitor.functional.permutation import Blocks
from genmonitor.linalg import chunking


def smooth(n: int, channels: int = 1, height: int = 12, width: int = 14, seed: int = 0) -> torch.Tensor:
    """Images that vary mostly in brightness and large shapes, as real ones do."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(n, channels, 4, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, channels, height, width, generator=generator, dtype=torch.float64)
    return 0.5 + 0.2 * F.interpolate(coarse, (height, width), mode="bilinear") + 0.03 * noise


def two_sides(n: int = 150, **shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    return smooth(n, **shape, seed=1), smooth(n, **shape, seed=2)


def by_formula(fake, real, blocks, sides, cell=1):
    """The splits of the blocks as splits of their images."""
    return ref.discrepancy_map(
        blocks.take(fake, real).numpy(), blocks.splits.numpy().repeat(blocks.size, 1), sides, cell
    )


@pytest.mark.parametrize(
    ("n", "channels", "height", "width"), [(11, 1, 7, 9), (11, 3, 6, 5), (11, 1, 3, 20), (101, 1, 4, 5)]
)
def test_twin(n, channels, height, width):
    fake, real = smooth(n, channels, height, width), smooth(n + 3, channels, height, width, seed=1)
    fake[:, :, :3, :2] += 0.1
    expected = by_formula(fake, real, Blocks.of(fake, real, 39, 3), (2, 4))
    found = discrepancy_map(fake, real, sides=(2, 4), num_permutations=39, seed=3)
    np.testing.assert_allclose(found["map"].numpy(), expected["map"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found["p_map"].numpy(), expected["p_map"], atol=1e-12)
    assert float(found["p"]) == pytest.approx(expected["p_map"].min())


def test_cells_of_large_images_average_the_waves():
    fake, real = smooth(8, 1, 6, 130), smooth(9, 1, 6, 130, seed=1)  # cells of 3 pixels, the last ones of one
    expected = by_formula(fake, real, Blocks.of(fake, real, 19), (4,), cell=3)
    found = discrepancy_map(fake, real, sides=(4,), num_permutations=19)
    np.testing.assert_allclose(found["map"].numpy(), expected["map"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found["p_map"].numpy(), expected["p_map"], atol=1e-12)


FAULTS = {
    "shift": lambda x: x + 0.1,
    "noise": lambda x: x + 0.05 * torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=x.dtype),
    "blur": lambda x: F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1),
    "contrast": lambda x: x.mean((2, 3), keepdim=True) + 0.6 * (x - x.mean((2, 3), keepdim=True)),
    "blank in some": lambda x: x * (torch.arange(len(x)) % 8 > 0)[:, None, None, None],
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", [(0, 6, 8, 14), (4, 10, 3, 8)])
def test_the_peak_is_inside_the_fault(fault, place):
    fake, real = two_sides(300)
    top, bottom, left, right = place
    area = torch.zeros(12, 14, dtype=torch.bool)
    area[top:bottom, left:right] = True
    fake = torch.where(area, FAULTS[fault](fake), fake)
    found = discrepancy_map(fake, real, num_permutations=59)
    assert float(found["p"]) == pytest.approx(1 / 60)
    assert area.flatten()[found["map"].argmax()]
    assert float(found["p_map"].flatten()[found["map"].argmax()]) == pytest.approx(1 / 60)


def test_sizes_do_not_saturate():
    fake, real = two_sides()
    peaks = [float(discrepancy_map(fake + s, real, num_permutations=19)["map"].max()) for s in (0.05, 0.1, 0.2, 0.4)]
    assert all(b > 1.2 * a for a, b in pairwise(peaks))
    assert peaks[-1] > 10 * math.sqrt(20)


@pytest.mark.nightly
@pytest.mark.slow
def test_level_by_simulation():
    """400 evaluations without a difference: 20 rejections expected, standard deviation 4.4, three of them allowed."""
    generator, rejected = torch.Generator().manual_seed(0), 0
    images = smooth(400, 1, 6, 6)
    for seed in range(400):
        x = images[torch.randperm(400, generator=generator)[:28]]
        rejected += float(discrepancy_map(x[:12], x[12:], sides=(2, 4), num_permutations=39, seed=seed)["p"]) <= 0.05
    assert 7 <= rejected <= 33


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    n=st.integers(8, 14),
    m=st.integers(8, 14),
    channels=st.integers(1, 3),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_order_and_dtype_of_the_samples_change_nothing(n, m, channels, height, width, seed):
    fake = smooth(n, channels, height, width, seed).float()
    real = smooth(m, channels, height, width, seed + 1).float()
    expected = discrepancy_map(fake, real, num_permutations=19, seed=seed)
    assert {name: tuple(x.shape) for name, x in expected.items()} == {
        "map": (height, width),
        "p_map": (height, width),
        "p": (),
    }
    assert float(expected["map"].min()) >= 0
    assert 1 / 20 <= float(expected["p"]) == float(expected["p_map"].min()) <= float(expected["p_map"].max()) <= 1
    for a, b in ((fake.flip(0), real.roll(3, 0)), (fake.double(), real.double())):
        torch.testing.assert_close(discrepancy_map(a, b, num_permutations=19, seed=seed), expected)


def test_scale_and_shift_do_not_matter():
    x = smooth(40)
    blocks = Blocks.of(x[:18], x[18:], 19)
    expected = cell_discrepancies(x, blocks)
    for other in (1000 * x, x + 5, 1e-6 * x):
        torch.testing.assert_close(cell_discrepancies(other, blocks), expected)


def test_a_small_budget_changes_nothing_but_the_rounding(monkeypatch):
    fake, real = (x.float() for x in two_sides(40))
    expected = discrepancy_map(fake, real, num_permutations=19)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 20_000)
    found = discrepancy_map(fake, real, num_permutations=19)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_images_that_all_agree_do_not_differ():
    same = torch.full((10, 3, 5, 6), 0.3)
    found = discrepancy_map(same, same)
    assert float(found["p"]) == 1
    assert not found["map"].any()


def test_a_lone_pixel_that_one_image_has_is_no_difference():
    fake, real = torch.zeros(2, 30, 1, 8, 8)
    fake[0, 0, 2, 2] = 1
    found = discrepancy_map(fake, real)
    assert float(found["p"]) > 0.05
    assert float(found["map"].max()) < 1


def test_pixels_that_only_a_generator_fills_are_found():
    fake, real = two_sides(40)
    fake[..., :3], real[..., :3] = 0.01, 0
    found = discrepancy_map(fake, real)
    assert float(found["p"]) == 1 / 1000
    assert int(found["map"].argmax()) % 14 < 3


def test_pixels_that_hardly_vary_have_no_evidence_of_what_is_beside_them():
    fake, real = two_sides(300)
    for x in (fake, real):
        x[..., :7] = 0.5 + 1e-4 * x[..., :7]
    fake[..., 8:] += 0.1 * torch.randn(300, 1, 12, 6, generator=torch.Generator().manual_seed(5), dtype=fake.dtype)
    found = discrepancy_map(fake, real, sides=(1,), num_permutations=39)
    assert float(found["p_map"][:, 8:].median()) <= 0.05
    assert float(found["p_map"][:, :7].min()) > 0.05


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16])
def test_other_dtypes_are_promoted(dtype):
    fake, real = (200 * x.clamp(0, 1) for x in two_sides(20))
    found = discrepancy_map(fake.to(dtype), real.to(dtype), num_permutations=19)
    scale = 255 if dtype == torch.uint8 else 1
    as_float = [(x.to(dtype) / scale if scale == 255 else x.to(dtype).float()) for x in (fake, real)]
    torch.testing.assert_close(found, discrepancy_map(*as_float, num_permutations=19))
