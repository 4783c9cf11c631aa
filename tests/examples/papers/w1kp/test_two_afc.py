# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch
from scipy.stats import binomtest
from two_afc import two_afc_accuracy

NEAR, FAR = torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([2.0, 2.0, 2.0, 2.0])


def test_accuracy_is_the_mean_share_that_agrees():
    chose_b = torch.tensor([0.0, 0.25, 0.5, 1.0])
    found = two_afc_accuracy(NEAR, FAR, chose_b)  # always a
    assert found.accuracy == pytest.approx((1 + 0.75 + 0.5 + 0) / 4)
    assert found.ceiling == pytest.approx((1 + 0.75 + 0.5 + 1) / 4)
    assert found.majority == pytest.approx(2 / 3)  # people are undecided about the third
    assert found.triplets == 4


def test_swapping_both_images_and_votes_changes_nothing():
    generator = torch.Generator().manual_seed(0)
    a, b, votes = torch.rand(3, 50, generator=generator)
    assert two_afc_accuracy(b, a, 1 - votes) == pytest.approx(two_afc_accuracy(a, b, votes))
    assert two_afc_accuracy(b, a, votes).accuracy == pytest.approx(1 - two_afc_accuracy(a, b, votes).accuracy)
    assert two_afc_accuracy(3 * a**2, 3 * b**2, votes) == two_afc_accuracy(a, b, votes)  # of any kind


def test_equal_distances_agree_with_half():
    found = two_afc_accuracy(NEAR, NEAR, torch.tensor([0.0, 0.0, 1.0, 0.9]))
    assert found.accuracy == 0.5
    assert found.majority == 0.5


def test_who_chooses_with_the_majority_reaches_the_ceiling():
    votes = torch.rand(50, generator=torch.Generator().manual_seed(1))
    found = two_afc_accuracy(votes, 1 - votes, votes)
    assert found.accuracy == pytest.approx(found.ceiling)
    assert found.majority == 1


@pytest.mark.parametrize("right", [0, 1, 37, 60])
def test_the_interval_is_wilsons(right):
    votes = (torch.arange(60) >= right).double()
    found = two_afc_accuracy(torch.zeros(60), torch.ones(60), votes)
    expected = binomtest(right, 60).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_people_who_never_agree_have_no_majority():
    assert math.isnan(two_afc_accuracy(NEAR, FAR, torch.full((4,), 0.5)).majority)


def test_refusals():
    votes = torch.tensor([0.0, 0.25, 0.5, 1.0])
    with pytest.raises(ValueError, match=r"`chose_b` in \[0, 1\], but got 0 to 2\. Give the share"):
        two_afc_accuracy(NEAR, FAR, 2 * votes)
    for a, b, name in (
        (NEAR, FAR[1:], "to_b"),
        (NEAR, FAR[:, None], "to_b"),
        (NEAR / 0, FAR, "to_a"),
        (NEAR[:0],) * 2 + ("to_a",),
    ):
        with pytest.raises(ValueError, match=f"`{name}` of shape"):
            two_afc_accuracy(a, b, votes)
