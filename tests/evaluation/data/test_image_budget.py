# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.evaluation.data.image_budget import cka_work, evenly_spread, image_budget


@pytest.mark.parametrize(
    ("shape", "patch_size"),
    [((1, 8, 8), 1), ((3, 32, 32), 1), ((3, 64, 64), 1), ((3, 256, 256), 4), ((3, 1024, 1024), 8)],
)
def test_image_budget_is_within_its_bounds(shape, patch_size):
    assert 1000 <= image_budget(shape, patch_size) <= 5000


def test_image_budget_falls_with_the_size():
    budgets = [image_budget((3, side, side)) for side in (8, 32, 64, 96, 128)]
    assert budgets == sorted(budgets, reverse=True)
    assert image_budget((3, 128, 128), 4) > image_budget((3, 128, 128))


def test_cka_work_grows_with_images_and_with_pairs_of_sites():
    assert cka_work(10, (3, 8, 8)) == 10 * 64**2 * 3
    assert cka_work(10, (3, 8, 8), patch_size=2) == 10 * 16**2 * 12


@pytest.mark.parametrize(("length", "count"), [(10, 3), (7, 7), (100, 99), (5, 50), (20_000_000, 5000)])
def test_evenly_spread_takes_different_indices_in_order(length, count):
    state = torch.get_rng_state()
    chosen = evenly_spread(length, count)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(set(chosen)) == min(length, count)
    assert chosen == sorted(chosen)
    assert chosen[0] >= 0
    assert chosen[-1] < length
