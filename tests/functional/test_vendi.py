# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
import torch
from _helpers import entropy_references as twin
from _helpers import references as ref
from _helpers.entropy_references import digits
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel
from genmonitor.functional import rke_score, vendi_from_covariance, vendi_from_gram, vendi_score
from genmonitor.kernels.covariance import random_features
from genmonitor.linalg import chunking

ORDERS = [0.5, 1.0, 1.7, 2.0, 6.0, math.inf]
KERNELS = {
    "cosine": (CosineKernel(), lambda x: twin.unit(x) @ twin.unit(x).T),
    "gaussian": (GaussianKernel(0.2), lambda x: ref.gram(x, x, 0.2)),
    "laplacian": (LaplacianKernel(0.2), lambda x: ref.gram(x, x, 0.2, "laplacian")),
}


def draw(n: int, d: int = 3, seed: int = 0, shift: float = 0.0) -> torch.Tensor:
    return shift + torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.float64, 1e-9)])
def test_digits(dtype, error):
    x, kernel = digits().to(dtype), GaussianKernel.from_sigma(2.0)
    assert float(vendi_score(x + 1)) == pytest.approx(twin.VENDI, rel=error)
    assert float(rke_score(x + 1)) == pytest.approx(twin.RKE, rel=error)
    assert float(vendi_score(x + 1, order=2)) == pytest.approx(twin.RKE, rel=error)
    assert float(vendi_score(x + 1, order=math.inf)) == pytest.approx(twin.VENDI_INFINITE, rel=error)
    assert float(vendi_score(x, kernel=kernel)) == pytest.approx(twin.EXACT_VENDI, rel=error)
    assert float(rke_score(x, kernel=kernel)) == pytest.approx(twin.EXACT_RKE, rel=error)
    assert vendi_score(x + 1).dtype == rke_score(x + 1).dtype == torch.float64


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("n", "d"), [(12, 3), (5, 9)])
def test_twin(name, order, n, d):
    kernel, gram = KERNELS[name]
    x = draw(n, d)
    assert float(vendi_score(x, kernel=kernel, order=order)) == pytest.approx(twin.vendi(gram(x.numpy()), order))


@pytest.mark.parametrize("order", ORDERS)
def test_entry_points_agree(order):
    x = draw(12, 4)
    phi = torch.from_numpy(twin.unit(x.numpy()))
    expected = float(vendi_score(x, order=order))
    assert float(vendi_from_gram(phi @ phi.T, order=order)) == pytest.approx(expected)
    assert float(vendi_from_covariance(phi.T @ phi / 12, order=order)) == pytest.approx(expected)


@pytest.mark.parametrize("name", KERNELS)
def test_rke_is_vendi_of_order_2(name):
    kernel, gram = KERNELS[name]
    for x in (draw(12, 3), draw(5, 9)):
        expected = 1 / (gram(x.numpy()) ** 2).mean()
        assert float(rke_score(x, kernel=kernel)) == pytest.approx(expected)
        assert float(vendi_score(x, kernel=kernel, order=2)) == pytest.approx(expected)


@pytest.mark.parametrize("score", [rke_score, *(lambda x, o=o, **kw: vendi_score(x, order=o, **kw) for o in ORDERS)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_closed_forms(score, dtype):
    gaussian = GaussianKernel(50.0)
    for kernel in (None, gaussian):
        eye = torch.eye(6, dtype=dtype)  # with this gamma no more than e^-100 from orthogonal
        assert float(score(3 * eye, kernel=kernel)) == pytest.approx(6)
        assert float(score(eye[[0] * 7], kernel=kernel)) == pytest.approx(1, abs=1e-6)
        assert float(score(eye[:4].repeat_interleave(9, dim=0), kernel=kernel)) == pytest.approx(4)
    far = 10 * torch.randn(5, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
    random = score(far.repeat(60, 1), kernel=GaussianKernel(0.5), num_features=4000)
    assert float(random) == pytest.approx(5, rel=0.04)  # features are orthogonal within 1 / sqrt(8000)


@pytest.mark.parametrize("n", [10, 60])
@pytest.mark.parametrize("order", [1.0, 2.0])
def test_random_features_are_those_of_the_formula(n, order):
    """Fewer samples than features go by the Gram matrix, more by the covariance."""
    x, kernel = draw(n), GaussianKernel(0.2)
    frequencies = random_features(GaussianKernel(0.2), 3, 16, 7).frequencies.double().numpy()
    phi = twin.fourier(x.numpy(), frequencies)
    found = vendi_score(x, kernel=kernel, order=order, num_features=16, seed=7)
    assert float(found) == pytest.approx(twin.vendi(phi @ phi.T, order))
    if order == 2:
        assert float(rke_score(x, kernel=kernel, num_features=16, seed=7)) == pytest.approx(float(found))


def test_random_features_come_near_the_kernel():
    """The entries are off by 1 / sqrt(2 · 4000) at most in standard deviation."""
    x, kernel = draw(300, shift=5.0), GaussianKernel(0.2)
    exact = [float(vendi_score(x, kernel=kernel)), float(rke_score(x, kernel=kernel))]
    found = [float(score(x, kernel=kernel, num_features=4000)) for score in (vendi_score, rke_score)]
    assert found == pytest.approx(exact, rel=0.03)
    few = float(vendi_score(x, kernel=kernel, num_features=20))
    assert few != pytest.approx(exact[0], rel=0.03)


@pytest.mark.parametrize("t", [1, 2, 3, 5])
def test_truncation(t):
    x = draw(12, 5)
    gram = twin.unit(x.numpy()) @ twin.unit(x.numpy()).T
    expected = twin.truncated_vendi(gram, t)
    phi = torch.from_numpy(twin.unit(x.numpy()))
    assert float(vendi_score(x, truncation=t)) == pytest.approx(expected)
    assert float(vendi_from_gram(phi @ phi.T, truncation=t)) == pytest.approx(expected)
    assert float(vendi_from_covariance(phi.T @ phi / 12, truncation=t)) == pytest.approx(expected)
    assert expected <= t + 1e-9


@settings(max_examples=25, deadline=None, derandomize=True)
@given(n=st.integers(2, 9), d=st.integers(1, 6), order=st.sampled_from(ORDERS), seed=st.integers(0, 99))
def test_range_order_and_copies(n, d, order, seed):
    x = draw(n, d, seed=seed)
    value = float(vendi_score(x, order=order))
    assert 1 - 1e-9 <= value <= min(n, d) + 1e-9
    assert float(vendi_score(x.flip(0), order=order)) == pytest.approx(value)
    assert float(vendi_score(x.repeat(3, 1), order=order)) == pytest.approx(value)  # each sample three times
    assert float(vendi_score(2 * x, order=order)) == pytest.approx(value)
    assert value <= float(vendi_score(x, order=order / 2)) + 1e-9


def test_gamma_that_is_not_given_is_of_the_samples():
    x = draw(12)
    gamma = ref.median_gamma(x.numpy())
    expected = twin.vendi(ref.gram(x.numpy(), x.numpy(), gamma))
    assert float(vendi_score(x, kernel=GaussianKernel())) == pytest.approx(expected)
    assert float(rke_score(x, kernel=GaussianKernel())) == pytest.approx(
        1 / (ref.gram(x.numpy(), x.numpy(), gamma) ** 2).mean()
    )


def test_a_rank_deficient_matrix_gives_a_finite_value():
    x = torch.cat([draw(3, 8), draw(3, 8)]).float()
    expected = twin.vendi(twin.unit(x.double().numpy()) @ twin.unit(x.double().numpy()).T)
    for order in ORDERS:
        assert math.isfinite(vendi_score(x, order=order))
    assert float(vendi_score(x)) == pytest.approx(expected, rel=1e-6)
    assert float(vendi_score(x, order=1e-9)) == pytest.approx(3)  # the rank


@pytest.mark.parametrize("kernel", [GaussianKernel(0.2), LaplacianKernel(0.2)])
def test_rke_goes_through_the_pairs_in_blocks(monkeypatch, kernel):
    x = draw(50)
    whole = float(rke_score(x, kernel=kernel))
    shapes = []
    original = type(kernel).distances
    monkeypatch.setattr(type(kernel), "distances", lambda *args: shapes.append(len(args[1])) or original(*args))
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 6 * 8 * 50 * 3)
    assert float(rke_score(x, kernel=kernel)) == pytest.approx(whole)
    assert max(shapes) == 3  # rows of the matrix that are held at a time


def test_float32_far_from_zero():
    x = (100 + draw(200, 64) / 100).float()
    for options in ({}, {"num_features": 30}):
        found = vendi_score(x, kernel=GaussianKernel(40.0), **options)
        exact = vendi_score(x.double() - 100, kernel=GaussianKernel(40.0), **options)  # a shift rotates the features
        assert float(found) == pytest.approx(float(exact), rel=1e-4)


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("options", [{}, {"kernel": GaussianKernel(0.3)}, {"num_features": 3}, {"truncation": 2}])
def test_gradient(order, options):
    options = {"kernel": GaussianKernel(0.3)} | options if "num_features" in options else options
    for x in (draw(4, 3).requires_grad_(), draw(7, 3).requires_grad_()):
        assert torch.autograd.gradcheck(lambda x: vendi_score(x, order=order, **options), x)
        if order == 2 and "truncation" not in options:
            assert torch.autograd.gradcheck(lambda x: rke_score(x, **options), x)


def test_zero_vectors_are_fine_for_other_kernels():
    x = torch.cat([draw(3), torch.zeros(2, 3, dtype=torch.float64)])
    array = x.numpy()
    found = vendi_score(x, kernel=GaussianKernel(0.2))
    assert float(found) == pytest.approx(twin.vendi(np.asarray(ref.gram(array, array, 0.2))))
