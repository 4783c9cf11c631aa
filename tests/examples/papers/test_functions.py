# SPDX-License-Identifier: Apache-2.0
"""What the documentation names for use outside the papers' scripts."""

import numpy as np
import pytest
import torch
from _helpers.golden import digits
from _helpers.references import gram
from cutoffs import fit_cutoffs
from eigenvalue_gap import sigma_by_eigenvalue_gap
from scipy.stats import binomtest
from two_afc import two_afc_accuracy

PLANTED = (0.2, 0.4, 0.85)


def test_planted_cutoffs_are_found_among_wrong_judgments():
    rng = np.random.default_rng(0)
    similarity = rng.random(2000)
    levels = np.searchsorted(PLANTED, similarity, side="right")
    lost = rng.random(2000) < 0.3
    levels[lost] = rng.integers(0, 4, lost.sum())
    found = fit_cutoffs(torch.from_numpy(similarity), torch.from_numpy(levels))
    assert found.cutoffs == pytest.approx(PLANTED, abs=0.03)
    assert found.cross_validated == pytest.approx(1 - 0.3 * 3 / 4, abs=0.03)


def test_accuracy_is_the_mean_share_that_agrees():
    chose_b = torch.tensor([0.0, 0.25, 0.5, 1.0])
    found = two_afc_accuracy(torch.ones(4), 2 * torch.ones(4), chose_b)  # always a
    assert found.accuracy == pytest.approx((1 + 0.75 + 0.5 + 0) / 4)
    assert found.ceiling == pytest.approx((1 + 0.75 + 0.5 + 1) / 4)
    assert found.majority == pytest.approx(2 / 3)  # people are undecided about the third
    of_37 = two_afc_accuracy(torch.zeros(60), torch.ones(60), (torch.arange(60) >= 37).double())
    expected = binomtest(37, 60).proportion_ci(method="wilson")
    assert (of_37.low, of_37.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


@pytest.mark.parametrize("gap", [0.01, 0.2])
def test_the_gap_is_met_and_no_wider_kernel_keeps_it(gap):
    x = digits().flatten(1)[:150]

    def gap_at(sigma):
        values = np.linalg.eigvalsh(gram(x.numpy(), x.numpy(), 1 / (2 * sigma**2)) / len(x))
        return float(values[-1] - values[-2])

    sigma = sigma_by_eigenvalue_gap(x, gap)
    assert gap_at(sigma) <= gap < gap_at(1.04 * sigma)
