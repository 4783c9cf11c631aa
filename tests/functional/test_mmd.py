# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers import references as ref
from _helpers.golden import FAKE, GAMMA, MMD_BIASED, MMD_UNBIASED, REAL, digits
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel
from genmonitor.functional import maximum_mean_discrepancy

KINDS = {"gaussian": GaussianKernel, "laplacian": LaplacianKernel}


def draw(n: int, d: int = 3, seed: int = 0, shift: float = 0.0) -> torch.Tensor:
    return shift + torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-8), (torch.float64, 6e-10)])
@pytest.mark.parametrize(("unbiased", "expected"), [(True, MMD_UNBIASED), (False, MMD_BIASED)])
def test_digits(dtype, error, unbiased, expected):
    images = digits().to(dtype)
    found = maximum_mean_discrepancy(images[FAKE], images[REAL], kernel=GaussianKernel(GAMMA), unbiased=unbiased)
    assert float(found) == pytest.approx(expected, abs=error)
    assert found.dtype == torch.float64


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("block", [None, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_twin(kind, block, unbiased):
    fake, real = draw(12), draw(20, seed=1, shift=0.3)
    found = maximum_mean_discrepancy(fake, real, kernel=KINDS[kind](0.2), block_size=block, unbiased=unbiased)
    expected = ref.mmd(fake.numpy(), real.numpy(), 0.2, kind, block, unbiased)
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_unbiased_mmd_has_no_bias_at_any_size():
    """The mean over all ways to draw is the value of the whole: here, two subsets of 3 from 4, summed over all."""
    fake, real, kernel = draw(4), draw(4, seed=1), GaussianKernel(0.2)
    subsets = [torch.tensor([i for i in range(4) if i != left]) for left in range(4)]
    values = [maximum_mean_discrepancy(fake[a], real[b], kernel=kernel) for a in subsets for b in subsets]
    assert float(torch.stack(values).mean()) == pytest.approx(
        float(maximum_mean_discrepancy(fake, real, kernel=kernel))
    )


def test_points_far_apart_reach_the_largest_value():
    x = torch.zeros(3, 1)
    found = maximum_mean_discrepancy(x, x + 100, kernel=GaussianKernel(1.0))
    assert float(found) == pytest.approx(2)


def test_gamma_that_is_not_given_is_of_the_real_side():
    fake, real = draw(10, shift=4), draw(12, seed=1)
    expected = ref.mmd(fake.numpy(), real.numpy(), ref.median_gamma(real.numpy()))
    assert float(maximum_mean_discrepancy(fake, real)) == pytest.approx(expected)


def test_images_and_their_pixels_are_the_same_samples():
    fake, real = draw(8, 12), draw(9, 12, seed=1)
    flat = maximum_mean_discrepancy(fake, real)
    assert maximum_mean_discrepancy(fake.reshape(8, 3, 2, 2), real.reshape(9, 3, 2, 2)) == flat


def test_float32_far_from_zero():
    x, y = (100 + draw(50, 512) / 100).float(), (100 + draw(40, 512, seed=1, shift=1) / 100).float()
    exact = float(maximum_mean_discrepancy(x.double(), y.double()))
    assert float(maximum_mean_discrepancy(x, y)) == pytest.approx(exact, abs=1e-6)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(n=st.integers(2, 9), m=st.integers(2, 9), gamma=st.floats(0.01, 2), seed=st.integers(0, 99))
def test_range_symmetry_and_order(n, m, gamma, seed):
    x, y, kernel = draw(n, seed=seed), draw(m, seed=seed + 1, shift=0.5), GaussianKernel(gamma)
    biased = float(maximum_mean_discrepancy(x, y, kernel=kernel, unbiased=False))
    unbiased = float(maximum_mean_discrepancy(x, y, kernel=kernel))
    assert -1e-15 <= biased <= 2
    assert unbiased <= biased
    assert float(maximum_mean_discrepancy(y, x, kernel=kernel)) == pytest.approx(unbiased)
    assert float(maximum_mean_discrepancy(x.flip(0), y.flip(0), kernel=kernel)) == pytest.approx(unbiased)
    assert float(maximum_mean_discrepancy(x, x, kernel=kernel, unbiased=False)) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("block", [None, 2])
@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("kernel", [GaussianKernel(0.3), LaplacianKernel(0.3), CosineKernel()])
def test_gradient(kernel, unbiased, block):
    def value(x, y):
        return maximum_mean_discrepancy(x, y, kernel=kernel, unbiased=unbiased, block_size=block)

    x, y = draw(4, 2).requires_grad_(), draw(6, 2, seed=1, shift=1).requires_grad_()
    assert torch.autograd.gradcheck(value, (x, y))
