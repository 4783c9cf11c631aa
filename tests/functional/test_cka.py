# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers import references as ref
from _helpers.golden import CKA, CKA_BATCHES_OF_100, CONSTANT, GAMMA, PAIRS, digits
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor import GaussianKernel, LaplacianKernel, PixelCKA
from genmonitor.functional import centered_kernel_alignment, pixel_cka
from genmonitor.functional import cka as levels
from genmonitor.functional.cka import gram_product, site_values
from genmonitor.linalg import chunking

KINDS = {"gaussian": GaussianKernel, "laplacian": LaplacianKernel}


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random images whose neighboring pixels depend on each other."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x + x.roll(1, dims=-1) + 0.3 * x.roll(1, dims=-2) ** 2


def at_pairs(matrix):
    return [float(matrix[pair]) for pair in PAIRS]


# the tolerance bounds the truncation, and rounding adds less than that again
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-6), (torch.float64, 1e-9)])
def test_digits_full_batch(dtype, tolerance):
    matrix = pixel_cka(digits()[:1000].to(dtype), kernel=GaussianKernel(GAMMA), tolerance=tolerance)
    assert at_pairs(matrix) == pytest.approx(CKA, abs=2 * tolerance)
    assert (matrix.diagonal() == 0).nonzero().flatten().tolist() == CONSTANT
    assert matrix[CONSTANT].count_nonzero() == matrix[:, CONSTANT].count_nonzero() == 0
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-8)
    assert (matrix.dtype, float(matrix.min()), float(matrix.max())) == (torch.float64, 0, 1)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.float64, 1e-9)])
def test_digits_in_mini_batches_of_100(dtype, error):
    matrix = pixel_cka(digits()[:1000].to(dtype), kernel=GaussianKernel(GAMMA), batch_estimator=100)
    assert at_pairs(matrix) == pytest.approx(CKA_BATCHES_OF_100, abs=error)


def test_gamma_that_is_not_given_is_the_one_of_whole_images():
    x = digits()[:1000]
    assert torch.equal(pixel_cka(x), pixel_cka(x, kernel=GaussianKernel().resolved(x.flatten(1))))
    assert at_pairs(pixel_cka(x)) == pytest.approx(CKA, abs=2e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("channels", "patch"), [(1, 1), (3, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("gamma", [0.02, 2.0])
def test_twin(kind, channels, patch, gamma):
    images = draw(15, channels, 4, 4)
    found = pixel_cka(images, kernel=KINDS[kind](gamma), patch_size=patch)
    np.testing.assert_allclose(found, ref.pixel_cka(images.numpy(), gamma, patch, kind), atol=2e-6)


def test_twin_of_the_mini_batches_with_what_is_constant_in_some():
    images = draw(17, 1, 2, 3)
    images[:5, 0, 0, 0] = 7  # constant in the first mini-batch
    images[:, 0, 1, 1] = -1  # constant throughout
    expected = ref.mini_batch_cka(images.numpy(), 0.1, 5)
    np.testing.assert_allclose(pixel_cka(images, kernel=GaussianKernel(0.1), batch_estimator=5), expected, atol=1e-12)
    assert (expected[0] != 0).sum() == 5


def test_the_ways_agree():
    images = draw(120, 1, 5, 5)
    gamma = ref.median_gamma(images.flatten(1).numpy())
    values = site_values(images, 1)
    by_levels = levels.taylor_cka(values, gamma, 1e-6)
    by_product = levels.normalized(gram_product(values, GaussianKernel(gamma)))
    assert by_levels is not None
    assert (by_levels - by_product).abs().max() < 1e-6


@pytest.mark.parametrize("gamma", [5.0, 1e4])
def test_a_large_gamma_takes_the_product(gamma):
    images = draw(20, 1, 3, 3)
    assert levels.taylor_cka(site_values(images, 1), gamma, 1e-6) is None
    expected = ref.pixel_cka(images.numpy(), gamma)
    np.testing.assert_allclose(pixel_cka(images, kernel=GaussianKernel(gamma)), expected, atol=1e-12)
    np.testing.assert_allclose(pixel_cka(images.float(), kernel=GaussianKernel(gamma)), expected, atol=2e-6)


@pytest.mark.parametrize("budget", [1, 5000, 100_000])
@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_budget_changes_no_value(kind, budget, monkeypatch):
    images = draw(40, 2, 3, 3)
    plain = pixel_cka(images, kernel=KINDS[kind](0.02), tolerance=1e-9)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    torch.testing.assert_close(pixel_cka(images, kernel=KINDS[kind](0.02), tolerance=1e-9), plain, rtol=0, atol=2e-9)


@pytest.mark.parametrize("gamma", [0.01, 5.0])
def test_a_shift_of_the_values_is_not_seen(gamma):
    images = draw(50, 1, 3, 3)
    shifted = (100 + images / 100).float()  # steps of 7.6e-6
    kernel, exact = GaussianKernel(1e4 * gamma), shifted.double()
    difference = pixel_cka(shifted, kernel=kernel) - pixel_cka(exact - 100, kernel=kernel, tolerance=1e-9)
    assert difference.abs().max() < 2e-6


def test_reduced_precision_around_the_call_changes_nothing():
    images = draw(300, 1, 4, 4).float()
    for kernel in (GaussianKernel(0.01), GaussianKernel(5.0)):
        plain = pixel_cka(images, kernel=kernel)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(pixel_cka(images, kernel=kernel), plain)


def test_bytes_are_read_as_0_to_255():
    images = torch.randint(256, (30, 3, 2, 2), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert torch.equal(pixel_cka(images), pixel_cka(images.double() / 255))


def test_images_all_alike_have_no_cka():
    assert not pixel_cka(torch.ones(5, 1, 2, 2), kernel=GaussianKernel(1.0)).any()


@settings(max_examples=15, deadline=None, derandomize=True)
@given(n=st.integers(3, 12), gamma=st.floats(0.01, 3), seed=st.integers(0, 99))
def test_cka_of_a_pair_is_the_formula(n, gamma, seed):
    x, y = draw(n, 2, seed=seed), draw(n, 3, seed=seed + 1)
    y[:, :2] += x
    found = centered_kernel_alignment(x, y, kernel=GaussianKernel(gamma))
    assert float(found) == pytest.approx(ref.cka(x.numpy(), y.numpy(), gamma), abs=1e-12)
    assert float(centered_kernel_alignment(y, x, kernel=GaussianKernel(gamma))) == pytest.approx(float(found))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert float(centered_kernel_alignment(x[order], y[order], kernel=GaussianKernel(gamma))) == pytest.approx(
        float(found)
    )


def test_cka_of_a_pair_takes_each_side_its_own_width():
    x, y = draw(20, 2), draw(20, 3, seed=1)
    found = float(centered_kernel_alignment(x, y))
    kernels_ = [GaussianKernel(ref.median_gamma(side.numpy())) for side in (x, y)]
    grams = [kernel(side, side).numpy() for kernel, side in zip(kernels_, (x, y), strict=True)]
    expected = ref.hsic(*grams) / np.sqrt(ref.hsic(grams[0], grams[0]) * ref.hsic(grams[1], grams[1]))
    assert found == pytest.approx(expected)
    assert float(centered_kernel_alignment(x, 7 * y)) == pytest.approx(found)


def test_cka_of_a_pair_at_its_ends():
    x = draw(30, 2)
    assert float(centered_kernel_alignment(x, -x)) == pytest.approx(1)
    assert centered_kernel_alignment(x, torch.ones(30, 1), kernel=GaussianKernel(1.0)) == 0
    # an outer product of two sets is independent exactly, not only as n grows; rounding must not leave [0, 1]
    for seed in range(20):
        a, b = draw(6, 1, seed=seed), draw(5, 1, seed=100 + seed)
        left, right = a.repeat_interleave(5, 0), b.repeat(6, 1)
        assert 0 <= float(centered_kernel_alignment(left, right)) < 1e-12
        assert 0.999 < float(centered_kernel_alignment(left, 3 * left)) <= 1


@pytest.mark.parametrize(("kernel", "bias"), [(None, 3.3), (GaussianKernel(1e-4), 1)], ids=["median width", "wide"])
def test_bias_of_independent_scalars_is_documented(kernel, bias):
    """In units of 1/N: a mean over 200 draws, whose standard error is 0.15 at most."""
    n, generator = 100, torch.Generator().manual_seed(0)
    pairs = torch.randn(200, 2, n, 1, generator=generator, dtype=torch.float64)
    found = [centered_kernel_alignment(x, y, kernel=kernel) for x, y in pairs]
    assert n * float(torch.stack(found).mean()) == pytest.approx(bias, abs=0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_few_gray_levels(kind):
    """float32 has 126/255, 127/255 and 128/255 at distances that differ by 1e-5: entries would be off by 6e-7."""
    generator = torch.Generator().manual_seed(1)
    images = (126 + torch.randint(0, 3, (40, 1, 2, 3), generator=generator)).to(torch.uint8)
    beside = torch.rand(40, 1, 2, generator=generator) < 0.7
    images[..., 1] = torch.where(beside, images[..., 0], images[..., 1])
    exact = images.double() / 255
    kernel = KINDS[kind]().resolved(exact.flatten(1))
    expected = ref.pixel_cka(exact.numpy(), kernel.gamma, kind=kind)
    metric = PixelCKA(KINDS[kind](), tolerance=1e-8)
    metric.update(images)
    for found in (pixel_cka(images, kernel=KINDS[kind](), tolerance=1e-8), metric.compute()):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)
