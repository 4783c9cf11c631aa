# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor.functional import discrepancy_map, significant_areas


def found(sizes: torch.Tensor, p: float = 0.005) -> dict[str, torch.Tensor]:
    return {"map": sizes, "p_map": torch.full_like(sizes, p)}


def box(top: int, bottom: int, left: int, right: int, size: tuple[int, int] = (16, 20)) -> torch.Tensor:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[top:bottom, left:right] = True
    return mask


def overlap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a & b).sum() / (a | b).sum())


def test_nothing_significant_has_no_area():
    assert significant_areas(found(torch.full((8, 8), 30.0), p=0.06)) == []
    assert significant_areas(found(torch.zeros(8, 8))) == []


def test_the_largest_difference_comes_first_and_chance_does_not_come():
    sizes = 0.4 * torch.rand(16, 20, generator=torch.Generator().manual_seed(0))
    small, large = box(1, 5, 1, 5), box(8, 14, 10, 18)
    sizes[small], sizes[large] = 60, 30
    areas = significant_areas(found(sizes))
    assert [torch.equal(area, mask) for area, mask in zip(areas, (large, small), strict=True)] == [True, True]


def test_what_is_not_significant_is_no_part():
    sizes, p_map = torch.full((16, 20), 9.0), torch.ones(16, 20)
    p_map[box(0, 6, 0, 7)] = 0.01
    (area,) = significant_areas({"map": sizes, "p_map": p_map})
    assert torch.equal(area, box(0, 6, 0, 7))


def test_a_border_in_pieces_is_one_area():
    sizes = torch.zeros(16, 20)
    sizes[~box(2, 14, 2, 18)] = 20
    sizes[6:9, :2] = 0
    sizes[:2, 9:13] = 0
    (area,) = significant_areas(found(sizes))
    assert torch.equal(area, sizes > 0)


def test_what_holds_most_of_the_image_is_all_of_it():
    sizes = 20 + 30 * torch.rand(16, 20, generator=torch.Generator().manual_seed(0))
    sizes[5:8, 5:9] = 0
    (area,) = significant_areas(found(sizes))
    assert area.all()


def test_a_peak_in_an_image_that_differs_everywhere_stands_out():
    sizes = torch.full((16, 20), 5.0)
    sizes[box(10, 16, 12, 20)] = 300
    (area,) = significant_areas(found(sizes))
    assert torch.equal(area, box(10, 16, 12, 20))


@pytest.mark.parametrize("fault", ["shift", "noise"])
def test_the_area_is_the_fault(fault):
    generator = torch.Generator().manual_seed(0)
    images = 0.2 * torch.nn.functional.interpolate(torch.randn(600, 1, 4, 5, generator=generator), (16, 20))
    images += 0.03 * torch.randn(images.shape, generator=generator)
    fake, real = images.split(300)
    mask = box(9, 16, 3, 11)
    noise = 0.06 * torch.randn(fake.shape, generator=generator)
    fake = torch.where(mask, fake + (0.2 if fault == "shift" else noise), fake)
    areas = significant_areas(discrepancy_map(fake, real))
    assert overlap(areas[0], mask) >= 0.5
    assert len(areas) == 1


@settings(max_examples=50, deadline=None, derandomize=True)
@given(height=st.integers(1, 12), width=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_areas_are_disjoint_and_hold_the_peak(height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.rand(height, width, generator=generator).pow(-1.5)
    areas = significant_areas(found(sizes))
    assert all(area.dtype == torch.bool and area.shape == sizes.shape and area.any() for area in areas)
    assert int(torch.stack(areas).sum(0).max()) == 1
    sums = [float(sizes[area].sum()) for area in areas]
    assert sums == sorted(sums, reverse=True)
    # the peak may be a pixel whose piece is light beside a large one
    assert any(bool(area.flatten()[sizes.argmax()]) for area in areas) or float(sizes.max()) < sums[0]


def test_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"of one shape \[H, W\], but got \[3, 4\] and \[4, 3\]. Pass what"):
        significant_areas({"map": torch.ones(3, 4), "p_map": torch.ones(4, 3)})
