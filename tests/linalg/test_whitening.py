# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers import references as ref
from scipy.fft import dct

from genmonitor.linalg import chunking
from genmonitor.linalg.whitening import REACH, Whitening, cosines


def draw(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    noise = torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return noise.cumsum(-1).cumsum(-2) + 100


@pytest.mark.parametrize("shape", [(1, 5, 8), (3, 4, 4), (2, 1, 1)])
def test_twin(shape):
    pool, images = draw(40, *shape), draw(9, *shape, seed=1)
    whitening = Whitening.of(pool)
    expected = ref.whitened(pool.numpy(), images.numpy() - pool.numpy().mean(0))
    np.testing.assert_allclose(whitening(images).numpy(), expected, atol=1e-9)
    # rounding of 100 in float32, over 2 % of the largest deviation, times some hundred summands
    bound = 100 * 2**-24 / 0.02 * 100
    np.testing.assert_allclose(Whitening.of(pool.float())(images.float()).numpy(), expected, atol=bound)


@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_cosines_are_those_of_scipy(size):
    np.testing.assert_allclose(cosines(size).numpy(), dct(np.eye(size), axis=0, norm="ortho"), atol=1e-14)


def test_a_fault_shows_no_further_than_the_filter_reaches():
    images = draw(60, 2, 16, 16)
    faulty = images.clone()
    faulty[:, 0, 12:, 12:] += 5
    whitening = Whitening.of(images)
    changed = (whitening(faulty) - whitening(images)).abs().amax((0, 1)) > 1e-9
    assert changed[12:, 12:].any()
    assert not changed[: 12 - REACH].any()
    assert not changed[:, : 12 - REACH].any()


def test_pixels_outside_do_not_show():
    images = draw(30, 2, 6, 6)
    inside = torch.zeros(6, 6, dtype=torch.bool)
    inside[1:4, 2:5] = True
    whitening = Whitening.of(images)
    others = torch.where(inside, images, draw(30, 2, 6, 6, seed=2))
    torch.testing.assert_close(whitening(images, inside), whitening(others, inside), atol=0, rtol=0)
    assert not whitening(images, inside)[..., ~inside].any()
    assert whitening(images, inside)[..., inside].std() > 0.1


def test_images_that_do_not_vary_are_left():
    images = torch.full((5, 1, 4, 4), 0.3)
    assert not Whitening.of(images)(images).any()
    ones = Whitening.of(images)(images + 1)
    torch.testing.assert_close(ones, torch.ones_like(images))


def test_parts_within_the_budget_give_the_same(monkeypatch):
    images = draw(30, 3, 6, 6)
    expected = Whitening.of(images)(images)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 20_000)
    torch.testing.assert_close(Whitening.of(images)(images), expected)


@pytest.mark.parametrize(("top", "bottom"), [(0, 1), (0, 4), (1, 2), (2, 9), (5, 12), (11, 12)])
@pytest.mark.parametrize(("left", "right"), [(0, 7), (0, 1), (2, 5), (6, 7)])
def test_a_part_is_that_of_the_whole(top, bottom, left, right):
    images, inside = draw(30, 3, 12, 7), torch.rand(12, 7) < 0.7
    whitening = Whitening.of(images[:10], images[10:])
    for mask in (None, inside):
        expected = whitening(images, mask)[:, :, top:bottom, left:right]
        torch.testing.assert_close(whitening(images, mask, (slice(top, bottom), slice(left, right))), expected)


@pytest.mark.parametrize("channels", [1, 3, 6])
@pytest.mark.parametrize("count", [1, 15, 16, 40])
def test_images_whitened_alone_are_those_of_all(channels, count):
    images = torch.rand(40, channels, 12, 10, generator=torch.Generator().manual_seed(0))
    whitening = Whitening.of(images)
    exact = Whitening.of(images.double())(images.double())
    for some in whitening(images), torch.cat([whitening(part) for part in images.split(count)]):
        torch.testing.assert_close(some.double(), exact, rtol=0, atol=1e-5 * float(exact.abs().max()))
