# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers import references as ref
from _helpers.golden import GAMMA, digits
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel
from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.distances import centered, squared_distances, symmetric_product

KINDS = {"gaussian": GaussianKernel, "laplacian": LaplacianKernel}


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_gram_matrix_is_the_formula(kind):
    x, y = draw(5, 3), draw(4, 3, seed=1)
    expected = ref.gram(x.numpy(), y.numpy(), 0.3, kind)
    np.testing.assert_allclose(KINDS[kind](gamma=0.3)(x, y), expected, rtol=1e-13)
    np.testing.assert_allclose(KINDS[kind](gamma=0.3)(x.float(), y.float()), expected, rtol=1e-5)


def test_cosine_is_the_formula():
    x, y = draw(5, 3), draw(4, 3, seed=1)
    norms = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(y, axis=1)
    np.testing.assert_allclose(CosineKernel()(x, y), x.numpy() @ y.numpy().T / norms, atol=1e-14)


def test_sigma_is_the_standard_deviation_of_the_gaussian():
    assert GaussianKernel.from_sigma(0.5) == GaussianKernel(gamma=2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_median_heuristic_of_the_digits(dtype):
    images = digits().to(dtype).flatten(1)
    assert GaussianKernel().resolved(images[:1000]).gamma == pytest.approx(GAMMA, rel=1e-14)
    assert GaussianKernel().resolved(images).gamma == pytest.approx(GAMMA, rel=1e-14)  # the first 1000 only


@pytest.mark.parametrize("n", [2, 3, 4, 12])  # even and odd numbers of pairs
@pytest.mark.parametrize("kind", KINDS)
def test_median_heuristic_is_the_median_over_pairs(n, kind):
    x = draw(n, 5)
    assert KINDS[kind]().resolved(x).gamma == pytest.approx(ref.median_gamma(x.numpy(), kind), rel=1e-12)


def test_median_heuristic_survives_an_offset_in_float32():
    x = 100 + 0.01 * draw(50, 512)
    assert GaussianKernel().resolved(x.float()).gamma == pytest.approx(
        GaussianKernel().resolved(x.float().double()).gamma, rel=1e-9
    )


def test_a_given_gamma_stays():
    kernel = LaplacianKernel(gamma=3.0)
    assert kernel.resolved(draw(4, 2)) is kernel
    assert CosineKernel().resolved(draw(4, 2)) == CosineKernel()


def test_a_kernel_without_gamma_cannot_be_evaluated():
    with pytest.raises(ValueError, match="`gamma` to be set, but got None"):
        GaussianKernel()(draw(2, 2), draw(2, 2))


def test_samples_mostly_alike_have_no_median_width():
    x = torch.cat([torch.zeros(9, 2), torch.ones(1, 2)])
    with pytest.raises(ValueError, match="more than half of the distances are 0"):
        GaussianKernel().resolved(x)


@pytest.mark.parametrize("gamma", [0, -1.0, float("nan"), float("inf"), True, "1"])
def test_gamma_must_be_positive(gamma):
    with pytest.raises(ValueError, match="`gamma` to be a positive finite number, but got"):
        GaussianKernel(gamma=gamma)


def test_cosine_has_no_gamma():
    with pytest.raises(ValueError, match=r"no `gamma` for CosineKernel, but got 1\.0"):
        CosineKernel(gamma=1.0)


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


@settings(max_examples=50, deadline=None, derandomize=True)
@given(rows=st.integers(1, 1000), columns=st.none() | st.integers(1, 200), budget=st.integers(1, 10_000))
def test_row_blocks_cover_the_rows_once_within_the_budget(rows, columns, budget):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "MEMORY_BUDGET", budget)
        blocks = list(row_blocks(rows, 4, columns))
    assert [row for start, stop in blocks for row in range(start, stop)] == list(range(rows))
    assert all(stop - start == 1 or (stop - start) * 4 * (columns or rows) <= budget for start, stop in blocks)


@pytest.mark.parametrize("n", [1, 7, 300, 600])
def test_symmetric_product(n):
    x = draw(n, 3)
    torch.testing.assert_close(symmetric_product(x), x @ x.T)
