# SPDX-License-Identifier: Apache-2.0
"""What holds for any images and features: 1 to 6 channels, single pixels, any order, any batches, twins, one sample."""

import pytest
import torch
from _helpers.citizens import CITIZENS, feed
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor import (
    PRDC,
    CosineMeanSimilarity,
    GaussianKernel,
    MaximumMeanDiscrepancy,
    PixelCKA,
    PixelPartition,
    RKEScore,
    VendiScore,
)

KERNEL = GaussianKernel(0.7)
quickly = settings(max_examples=25, deadline=None)
SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 5)).filter(
    lambda shape: min(shape[:2]) <= 4 or shape[2] not in (1, 3, 4)  # would be taken for channels last
)
COUNTS = st.integers(2, 9)


def numbers(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compared(make, fake, real, order=None, batch=100):
    """Feed both sides, in another order and in batches where asked."""
    metric = make()
    for side, samples in ((False, fake), (True, real)):
        samples = samples if order is None else samples[torch.randperm(len(samples), generator=order)]
        for some in samples.split(batch):
            metric.update(some, real=side)
    return metric.compute()


def same(found, expected, error=1e-9):
    torch.testing.assert_close(found, expected, rtol=error, atol=error)


def halves(shape):
    return None if shape[1] == 1 else PixelPartition.grid(tuple(shape[1:]), 2, 1)


@quickly
@given(SHAPES, COUNTS, COUNTS, st.integers(1, 4), st.integers(0, 99))
def test_images_of_any_shape_order_and_batches_give_one_value(shape, n, m, batch, seed):
    fake, real = numbers(seed, n, *shape) ** 2, numbers(seed + 1, m, *shape)
    for make in (
        lambda: CosineMeanSimilarity(halves(shape), KERNEL),
        lambda: MaximumMeanDiscrepancy(KERNEL, unbiased=False),
    ):
        expected = compared(make, fake, real)
        same(compared(make, fake, real, torch.Generator().manual_seed(seed), batch), expected)
        values = expected if isinstance(expected, dict) else {"value": expected}
        assert all(bool(torch.as_tensor(value).isfinite().all()) for value in values.values())


@quickly
@given(SHAPES, COUNTS, st.integers(0, 99))
def test_images_against_themselves_are_perfect(shape, n, seed):
    fake, real = numbers(seed, n, *shape) ** 2, numbers(seed + 1, n, *shape)

    def cms():
        return CosineMeanSimilarity(None, KERNEL)

    same(compared(cms, real, real), torch.ones((), dtype=torch.float64))
    same(compared(cms, fake.repeat(2, 1, 1, 1), real.repeat(3, 1, 1, 1)), compared(cms, fake, real))


@quickly
@given(SHAPES, COUNTS, st.floats(-50, 50), st.floats(0.1, 10), st.integers(0, 99))
def test_a_shift_changes_nothing_and_a_scale_only_the_width(shape, n, shift, scale, seed):
    fake, real = numbers(seed, n, *shape) ** 2, numbers(seed + 1, n, *shape)
    expected = compared(lambda: CosineMeanSimilarity(None, KERNEL), fake, real)
    wider = GaussianKernel(0.7 / scale**2)
    found = compared(lambda: CosineMeanSimilarity(None, wider), scale * fake + shift, scale * real + shift)
    same(found, expected, 1e-6)


@quickly
@given(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)), st.integers(3, 9), st.integers(0, 99))
def test_cka_is_symmetric_bounded_and_blind_to_order(shape, n, seed):
    images = numbers(seed, n, *shape)
    metric = PixelCKA(KERNEL)
    metric.update(images)
    found = metric.compute()
    sites = shape[1] * shape[2]
    found = found.reshape(sites, sites)  # torchmetrics makes a scalar of a single value
    same(found, found.T)
    assert float(found.min()) >= -1e-9
    assert float(found.max()) <= 1 + 1e-9
    again = PixelCKA(KERNEL)
    again.update(images.flip(0))
    same(again.compute().reshape(sites, sites), found, 1e-6)


@quickly
@given(st.integers(2, 9), st.integers(1, 6), st.integers(1, 4), st.integers(0, 99))
def test_variety_is_blind_to_order_batches_twins_and_scale(n, dim, batch, seed):
    features = numbers(seed, n, dim) + 0.1
    for make in (VendiScore, RKEScore):
        expected = feed(make(), [((features,), {})]).compute()
        same(feed(make(), [((some,), {}) for some in features.flip(0).split(batch)]).compute(), expected, 1e-7)
        same(feed(make(), [((features.repeat(2, 1),), {})]).compute(), expected, 1e-7)
        same(feed(make(), [((7 * features,), {})]).compute(), expected, 1e-7)
        assert 1 - 1e-6 <= float(expected) <= min(n, dim) + 1e-6


@quickly
@given(st.integers(3, 9), st.integers(0, 99))
def test_features_that_are_all_the_same_have_one_mode(n, seed):
    features = numbers(seed, 1, 4).expand(n, 4) + 0.1
    for make in (VendiScore, RKEScore):
        same(feed(make(), [((features,), {})]).compute(), torch.ones((), dtype=torch.float64), 1e-6)


@quickly
@given(SHAPES, COUNTS)
def test_constant_images_are_equal_and_vary_nowhere(shape, n):
    images = torch.full((n, *shape), 0.5, dtype=torch.float64)
    same(compared(lambda: CosineMeanSimilarity(None, KERNEL), images, images), torch.ones((), dtype=torch.float64))
    metric = PixelCKA(KERNEL)
    metric.update(images)
    assert not metric.compute().any()


@quickly
@given(st.integers(6, 12), st.integers(0, 99))
def test_neighbors_are_blind_to_order(n, seed):
    fake, real = numbers(seed, n, 3) ** 2, numbers(seed + 1, n, 3)
    expected = compared(lambda: PRDC(k=3), fake, real)
    same(compared(lambda: PRDC(k=3), fake, real, torch.Generator().manual_seed(seed), 4), expected)


@pytest.mark.parametrize("name", CITIZENS)
def test_a_single_sample_is_refused_in_words(name):
    citizen = CITIZENS[name]
    with pytest.raises(ValueError, match=r"at least|more than"):
        feed(
            citizen.make(**citizen.arguments),
            [(tuple(x[:1] for x in tensors), how) for tensors, how in citizen.calls()],
        ).compute()
