# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor import GaussianKernel
from genmonitor.linalg.feature_maps import (
    fourier_features,
    taylor_features,
    taylor_size,
    unit_sphere,
)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_unit_sphere_keeps_directions():
    x = draw(6, 4)
    mapped = unit_sphere(x)
    torch.testing.assert_close(mapped.norm(dim=1), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(mapped * x.norm(dim=1, keepdim=True), x)


def test_the_zero_vector_has_no_direction():
    with pytest.raises(ValueError, match="2 of 3 are zero"):
        unit_sphere(torch.tensor([[0.0, 0], [1, 0], [0, 0]]))


def test_fourier_features_have_norm_one_and_the_kernel_as_mean():
    x, gamma = draw(6, 3), 0.4
    phi = fourier_features(x, math.sqrt(2 * gamma) * draw(20_000, 3, seed=1))
    assert phi.shape == (6, 40_000)
    torch.testing.assert_close(phi.square().sum(1), torch.ones(6, dtype=torch.float64))
    # an entry is a mean of 20,000 cosines: standard error below 0.0071 = 1 / sqrt(20,000)
    assert (phi @ phi.T - GaussianKernel(gamma)(x, x)).abs().max() < 4 * 0.0071


def test_taylor_size_counts_monomials():
    powers = [(a, b, c) for a in range(4) for b in range(4) for c in range(4) if a + b + c <= 3]
    assert taylor_size(values=3, degree=3) == len(powers)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    values=st.integers(1, 4),
    degree=st.integers(1, 5),
    gamma=st.floats(1e-3, 0.5),
    seed=st.integers(0, 99),
)
def test_taylor_features_are_within_the_remainder(values, degree, gamma, seed):
    u = draw(2, values, 5, seed=seed)
    phi = taylor_features(u, gamma, degree)
    assert phi.shape == (2, taylor_size(values, degree), 5)
    phi[:, 0] += 1  # the constant that is left out
    for site, features in zip(u, phi, strict=True):
        exact = GaussianKernel(gamma)(site.T, site.T)
        norms = site.norm(dim=0)
        remainder = (2 * gamma * torch.outer(norms, norms)) ** (degree + 1) / math.factorial(degree + 1)
        assert ((exact - features.T @ features).abs() <= remainder + 1e-12).all()


def test_the_feature_near_one_keeps_its_variation_in_float32():
    u = draw(1, 1, 100)
    exact = taylor_features(u, 1e-6, 1)
    single = taylor_features(u.float(), 1e-6, 1)
    torch.testing.assert_close(single.double(), exact, rtol=1e-5, atol=0)
    assert exact[0, 0].abs().max() < 1e-5  # 1 + this would round to 1 or to the next number
