# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers import references as ref
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor.linalg import chunking, distances
from genmonitor.linalg.distances import LOSS, centered, holds_distances, squared_distances, squared_norms


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def exact(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    return ref.distances(x.double().numpy(), y.double().numpy())


def far_out(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = draw(60, 7)
    x[3] = value
    x[4] = value * (1 + 1e-5)
    x[5] = x[6]
    return x.to(dtype)


VALUES = [1e2, 1e4, 1e6, 1e10, 1e18, 1e25, -1e25]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", VALUES)
def test_samples_far_out_spoil_no_distance(value, dtype):
    x = far_out(value, dtype)
    found = squared_distances(*centered(x.double(), x.double()))
    np.testing.assert_allclose(found, exact(x, x), rtol=LOSS)
    assert (found.diagonal() == 0).all()
    assert found[5, 6] == 0


@pytest.mark.parametrize("gamma", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("value", VALUES)
def test_a_width_says_how_right_they_must_be(value, gamma):
    x, y = far_out(value), draw(50, 7, seed=1).float()
    for a, b in ((x, x), (x, y), (y, x), (y, y)):
        found = squared_distances(*centered(a, b, gamma), gamma).double()
        error = np.abs(found.numpy() - exact(a, b)) / np.maximum(exact(a, b), 1 / gamma)
        assert error.max() < 4 * LOSS


@pytest.mark.parametrize("scale", [1e-25, 1e-18, 1e-12, 1.0, 1e12, 1e18, 1e25])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_scale_and_offset(scale, offset):
    x = (scale * (offset + draw(40, 9))).float()
    wanted = exact(x, x)
    gamma = 1 / np.median(wanted)
    found = squared_distances(*centered(x, x, gamma), gamma)
    np.testing.assert_allclose(gamma * found.double(), gamma * wanted, rtol=0, atol=4 * LOSS)


def test_ordinary_data_stay_in_float32():
    for x in (draw(50, 3), 100 + 0.01 * draw(50, 300), torch.rand(50, 3000), 5 + 1e-6 * draw(50, 40)):
        x = x.float()
        gamma = float(1 / np.median(exact(x, x)))
        assert centered(x, x, gamma)[0].dtype == torch.float32


def test_the_limit_is_a_squared_norm_of_8_over_gamma_in_float32():
    x = torch.zeros(2, 1)
    for norm, dtype in ((7.9, torch.float32), (8.1, torch.float64)):
        x[0], x[1] = norm**0.5, -(norm**0.5)
        assert centered(x, x, gamma=1.0)[0].dtype == dtype
        assert holds_distances(x, gamma=1.0) is (dtype == torch.float32)


def test_float64_is_not_shifted_where_that_would_lose_samples():
    x = far_out(1e25, torch.float64)
    assert centered(x, x, gamma=1.0)[0] is x
    assert centered(x.float(), x.float(), gamma=1.0)[0].equal(x.float().double())


def test_ordinary_float64_pairs_are_not_computed_anew(monkeypatch):
    monkeypatch.setattr(distances, "_correct", lambda *args: pytest.fail("by the norms alone it is not needed"))
    x = draw(50, 3)
    assert squared_distances(*centered(x, x, 0.3), 0.3).shape == (50, 50)


@pytest.mark.parametrize("budget", [1, 5000, chunking.MEMORY_BUDGET])
@pytest.mark.parametrize("spread", [0.0, 1e-9, 1e-7])
def test_two_tight_clusters_far_apart(monkeypatch, budget, spread):
    """Most pairs are lost to a product; those of equal samples are known without their differences."""
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    x = spread * draw(30, 4) + torch.tensor([1e3, -1e3])[torch.arange(30) % 2][:, None]
    x[10] = x[20]
    found = squared_distances(x, x)
    np.testing.assert_allclose(found, exact(x, x), rtol=LOSS, atol=0)
    assert found[10, 20] == 0


def test_equal_rows_have_equal_fingerprints_and_others_do_not():
    x = draw(2000, 3)
    x[5], x[6, 0] = x[4], 0.0
    x[7] = x[6]
    x[7, 0] = -0.0
    marks = distances._fingerprints(x)
    assert marks[5] == marks[4]
    assert marks[6] == marks[7]
    assert len(marks.unique()) == 1998
    assert not set(marks.tolist()) & set(distances._fingerprints(x.flip(1)).tolist())


@pytest.mark.parametrize("gamma", [None, 1e12])
def test_gradients_pass_through_what_is_computed_anew(gamma):
    x = (torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1e-8], [1e6, 3.0]]).double()).requires_grad_()
    y = torch.tensor([[0.0, 0.0], [1.0, 2e-8], [1e6, 3.1]]).double().requires_grad_()
    found = squared_distances(x, y, gamma)
    found.sum().backward()
    difference = (x[:, None] - y[None]).detach()
    torch.testing.assert_close(found.detach(), difference.square().sum(-1), rtol=LOSS, atol=0)
    torch.testing.assert_close(x.grad, 2 * difference.sum(1), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(y.grad, -2 * difference.sum(0), rtol=1e-6, atol=1e-9)


def test_each_part_is_changed_once(monkeypatch):
    monkeypatch.setattr(chunking, "CACHE", 8 * 5)
    x = draw(20, 3)
    doubled = squared_distances(x, x, then=lambda part: part.mul_(2))
    torch.testing.assert_close(doubled, 2 * squared_distances(x, x))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2), min_size=2, max_size=8))
def test_float64_distances_are_right_relative_to_themselves(rows):
    x = torch.tensor(rows, dtype=torch.float64)
    np.testing.assert_allclose(squared_distances(x, x), exact(x, x), rtol=LOSS, atol=1e-300)


def test_no_samples():
    none = torch.zeros(0, 3)
    assert squared_distances(*centered(none, torch.ones(4, 3), 1.0), 1.0).shape == (0, 4)


@pytest.mark.parametrize("dim", [1, 2048, 2049, 5000])
def test_squared_norms(dim):
    x = draw(5, dim)
    torch.testing.assert_close(squared_norms(x), x.square().sum(1))
