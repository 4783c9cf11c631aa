# SPDX-License-Identifier: Apache-2.0
"""The distance that faults explain: against a twin from the formula, and what must hold of it."""

import numpy as np
import pytest
import torch
from _helpers.references import Array, gram
from torch import Tensor

from genmonitor.functional.diagnosis.distance import GAMMAS, Distance, distance_of, pixel_views
from genmonitor.linalg.whitening import Whitening

CORNER = torch.zeros(6, 6, dtype=torch.bool)
CORNER[3:, 2:] = True
EVERYWHERE = torch.ones(6, 6, dtype=torch.bool)


def drawn(n: int, seed: int, channels: int = 2) -> Tensor:
    return torch.rand(n, channels, 6, 6, generator=torch.Generator().manual_seed(seed)).cumsum(3) / 6


def unbiased(x: Array, y: Array, gamma: float) -> float:
    xx, yy = gram(x, x, gamma), gram(y, y, gamma)
    n, m = len(x), len(y)
    pairs = (xx.sum() - n) / (n * (n - 1)) + (yy.sum() - m) / (m * (m - 1))
    return float(pairs - 2 * gram(x, y, gamma).mean())


def u_centered(k: Array) -> Array:
    """Székely and Rizzo 2014, definition 2, pair by pair."""
    n, k = len(k), k * (1 - np.eye(len(k)))
    out = np.zeros_like(k)
    for i in range(n):
        for j in range(n):
            if i != j:
                out[i, j] = k[i, j] - k[i].sum() / (n - 2) - k[:, j].sum() / (n - 2) + k.sum() / ((n - 1) * (n - 2))
    return out


def twin(fake: Tensor, real: Tensor, reference: Tensor, area: Tensor, unit: int) -> float:
    total, top, left = 0.0, *(int(x.min()) for x in area.nonzero(as_tuple=True))  # areas reach to the lower right
    seen = [images[..., top:, left:].double() for images in (fake, real, reference)]
    for view in (lambda x: x, Whitening.of(seen[2])):
        x, y, r = (view(images).flatten(1).numpy() for images in seen)
        n = len(r)
        scale = sum(((a - b) ** 2).sum() for a in r for b in r) / (n * (n - 1))
        for g in GAMMAS:
            square = (u_centered(gram(r, r, g / scale)) ** 2).sum() / (n * (n - 3))
            total += unbiased(x, y, g / scale) / (np.sqrt(8 * square) / unit)
    return total


@pytest.mark.parametrize("area", [CORNER, EVERYWHERE], ids=["corner", "everywhere"])
def test_it_is_the_formulas(area: Tensor) -> None:
    reference, real, fake = drawn(30, 0), drawn(20, 1), drawn(24, 2) + 0.1
    distance = Distance.of(reference, pixel_views(reference, area), 20)
    found = distance.between(distance.embedded(fake), distance.embedded(real))
    # kernels of float32 are right to about 1e-6 each; weights are some hundred
    assert found == pytest.approx(twin(fake, real, reference, area, 20), rel=1e-3, abs=1e-2)


def test_chance_makes_about_one_per_kernel_of_it() -> None:
    reference = drawn(200, 0)
    distance = Distance.of(reference, pixel_views(reference, CORNER), 50)
    found = [
        distance.between(distance.embedded(drawn(50, 2 * seed + 1)), distance.embedded(drawn(50, 2 * seed + 2)))
        for seed in range(40)
    ]
    kernels = 2 * len(GAMMAS)
    assert abs(np.mean(found)) < 3 * kernels / 40**0.5
    assert np.std(found) < 1.5 * kernels  # it is that many where all kernels go together, less where they do not


@pytest.mark.parametrize("area", [CORNER, CORNER ^ CORNER.T], ids=["corner", "no rectangle"])
def test_what_lies_outside_the_area_does_not_count(area: Tensor) -> None:
    reference = drawn(30, 0, channels=1)
    distance = Distance.of(reference, pixel_views(reference, area), 20)
    changed = torch.where(area, reference, 7.0)
    for x, y in zip(distance.embedded(changed), distance.embedded(reference), strict=True):
        assert torch.equal(x, y)


def test_images_without_variance_are_no_distance_apart() -> None:
    real = torch.ones(10, 1, 6, 6)
    distance = Distance.of(real, pixel_views(real, EVERYWHERE), 10)
    some = distance.embedded(drawn(10, 1, channels=1))
    assert distance.between(some, some) == 0


def test_of_grams_it_is_the_unbiased_discrepancy() -> None:
    x, y = (np.random.default_rng(seed).normal(size=(n, 3)) for seed, n in ((0, 7), (1, 9)))
    grams = (torch.tensor(gram(a, b, 0.5)) for a, b in ((x, x), (x, y), (y, y)))
    assert distance_of(*grams) == pytest.approx(unbiased(x, y, 0.5), rel=1e-12)
