# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers import references as ref
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor import GaussianKernel
from genmonitor.linalg.distances import centered, squared_distances, symmetric_product


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_squared_distances_far_from_zero_in_float32():
    x = (100 + 0.01 * draw(40, 512)).float()
    y = (100 + 0.01 * draw(30, 512, seed=1)).float()
    exact = ref.distances(x.double().numpy(), y.double().numpy())
    assert exact.mean() == pytest.approx(512 * 2e-4, rel=0.05)
    np.testing.assert_allclose(squared_distances(*centered(x, y)), exact, rtol=1e-4)
    # without the shift nothing is left of them
    assert np.abs(squared_distances(x, y).numpy() - exact).max() > 1


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=2), min_size=1, max_size=6))
def test_squared_distances_are_never_negative(rows):
    x = torch.tensor(rows, dtype=torch.float32)
    assert (squared_distances(x, x) >= 0).all()
    assert (GaussianKernel(gamma=1.0)(x, x) <= 1).all()


def test_squared_distances_rounded_below_zero_are_zero():
    x = (100 + 0.01 * draw(40, 512)).float()
    assert (x.square().sum(1)[:, None] + x.square().sum(1) - 2 * x @ x.T).min() < 0
    assert squared_distances(x, x).min() == 0


@pytest.mark.parametrize("n", [1, 7, 300, 600])
def test_symmetric_product(n):
    x = draw(n, 3)
    torch.testing.assert_close(symmetric_product(x), x @ x.T)
