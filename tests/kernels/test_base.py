# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers import references as ref
from _helpers.golden import GAMMA, digits

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel

KINDS = {"gaussian": GaussianKernel, "laplacian": LaplacianKernel}


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8, torch.int64])
@pytest.mark.parametrize("kernel", [GaussianKernel(0.1), LaplacianKernel(0.1), CosineKernel()])
def test_short_numbers_and_integers_become_float32(kernel, dtype):
    x, y = ((10 * draw(4, 3, seed=seed).abs() + 1).to(dtype) for seed in (0, 1))
    found = kernel(x, y)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, kernel(x.float(), y.float()), rtol=0, atol=0)
    torch.testing.assert_close(kernel(x, y.float()), found, rtol=0, atol=0)


@pytest.mark.parametrize("kernel", [GaussianKernel(0.1), CosineKernel()])
def test_no_real_numbers(kernel):
    with pytest.raises(TypeError, match=r"`x` to hold real numbers, but got dtype torch\.bool"):
        kernel(draw(4, 3) > 0, draw(4, 3))
