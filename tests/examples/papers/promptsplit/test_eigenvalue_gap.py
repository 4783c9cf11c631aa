# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers.golden import digits
from _helpers.references import gram
from eigenvalue_gap import sigma_by_eigenvalue_gap

from genmonitor import GaussianKernel

X = digits().flatten(1)[:150]


def gap_at(sigma: float) -> float:
    values = np.linalg.eigvalsh(gram(X.numpy(), X.numpy(), 1 / (2 * sigma**2)) / len(X))
    return float(values[-1] - values[-2])


@pytest.mark.parametrize("gap", [0.01, 0.2])
def test_the_gap_is_met_and_no_wider_kernel_keeps_it(gap):
    sigma = sigma_by_eigenvalue_gap(X, gap)
    assert gap_at(sigma) <= gap < gap_at(1.04 * sigma)


def test_a_smaller_gap_takes_a_narrower_kernel():
    assert sigma_by_eigenvalue_gap(X, 0.005) < sigma_by_eigenvalue_gap(X, 0.05)


def test_it_scales_with_the_samples_and_not_with_their_place():
    sigma = sigma_by_eigenvalue_gap(X)
    assert sigma_by_eigenvalue_gap(3 * X + 100) == pytest.approx(3 * sigma, rel=1e-6)
    assert sigma_by_eigenvalue_gap(X.float()) == pytest.approx(sigma, rel=1e-3)


def test_equal_samples_that_no_width_keeps_apart_are_refused():
    x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    x[:20] = x[0]  # their eigenvalue is at least 20/300
    with pytest.raises(ValueError, match="too many samples are equal"):
        sigma_by_eigenvalue_gap(x)


def test_any_width_keeps_a_gap_of_one():
    widest = 32 * (2 * GaussianKernel().resolved(X).resolved_gamma) ** -0.5
    assert 0.97 * widest < sigma_by_eigenvalue_gap(X, 1.0) <= widest


@pytest.mark.parametrize(
    ("features", "gap", "message"),
    [
        (X[:1], 0.01, "`features` to hold at least 2 samples"),
        (X / 0, 0.01, "`features` to be finite"),
        (X[:1].expand(9, -1), 0.01, "samples that differ"),
        (X, 0.0, "`gap` to be a positive"),
    ],
)
def test_bad_input(features, gap, message):
    with pytest.raises(ValueError, match=message):
        sigma_by_eigenvalue_gap(features, gap)


def test_no_tensor():
    with pytest.raises(TypeError, match=r"`features` to be a torch\.Tensor"):
        sigma_by_eigenvalue_gap([[0.0]])
