# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.golden import FAKE, REAL, digits

from genmonitor import DiscrepancyMap
from genmonitor.functional import discrepancy_map


def sides() -> tuple[torch.Tensor, torch.Tensor]:
    images = digits().reshape(-1, 1, 8, 8).float()
    return images[FAKE][:60], images[REAL][:70]


def test_arguments_are_passed_on():
    fake, real = sides()
    metric = DiscrepancyMap(sides=[3], num_permutations=59, seed=5, reset_real_features=False)
    metric.update(real, real=True)
    for samples in (fake, fake + 0.1):
        metric.reset()
        metric.update(samples, real=False)
        expected = discrepancy_map(samples, real, sides=(3,), num_permutations=59, seed=5)
        torch.testing.assert_close(metric.compute(), expected, rtol=0, atol=0)


def test_features_are_refused():
    with pytest.raises(ValueError, match=r"`real samples` of shape \[N, C, H, W\], but got \[9, 4\]"):
        DiscrepancyMap().update(torch.rand(9, 4), real=True)


def test_the_picture_shows_the_map_where_it_is_more_than_chance():
    found = {"map": torch.rand(4, 5), "p_map": torch.ones(4, 5)}
    found["p_map"][1:3] = 0.01
    _, ax = DiscrepancyMap().plot(found)
    shown = torch.as_tensor(ax.images[0].get_array().copy())
    assert torch.equal(shown[1:3], found["map"][1:3])
    assert not shown[0].any()
