# SPDX-License-Identifier: Apache-2.0
"""Statistics of images in an area: against a twin pixel by pixel, and what must hold of them."""

from itertools import product

import numpy as np
import pytest
import torch
from _helpers.references import Array
from torch import Tensor

from genmonitor.functional.diagnosis.distance import Statistics

LEAST, SAME, FEW = 1e-4, 1e-3, 1e-2

AREA = torch.zeros(12, 11, dtype=torch.bool)
AREA[3:9, 2:9] = True
INSIDE = {(y, x) for y, x in product(range(4, 8), range(3, 8))}
NEAR = {(y, x) for y, x in product(range(2, 10), range(1, 10))}
EDGE = NEAR - INSIDE


def drawn(n: int, seed: int, channels: int = 2) -> Tensor:
    images = torch.rand(n, channels, 12, 11, generator=torch.Generator().manual_seed(seed))
    return (8 * images).round() / 8  # neighbors are the same now and then


def twin(image: Array, around: set[tuple[int, int]], color: Array) -> list[float]:
    """All statistics of an image [C, H, W], one pixel after the other."""
    height, width = image.shape[1:]

    def mean_of(values: list[Array]) -> float:
        return float(np.mean([np.mean(x) for x in values])) if values else 0.0

    def detail(y: int, x: int) -> Array:
        rows, columns = (np.clip([at - 1, at, at + 1], 0, size - 1) for at, size in ((y, height), (x, width)))
        return image[:, y, x] - image[:, rows][:, :, columns].mean((1, 2))

    regions = (INSIDE, around)
    brightness = [np.mean([image[:, y, x] for y, x in region], 0) for region in regions]
    contrast = [
        mean_of([image[:, y, x] ** 2 for y, x in region]) - float(np.mean(bright**2))
        for region, bright in zip(regions, brightness, strict=True)
    ]
    details = [mean_of([detail(y, x) ** 2 for y, x in region]) for region in regions]
    steps, plateaus = [], []
    for down, right in ((0, 1), (1, 0)):
        moved = [
            [image[:, y + down, x + right] - image[:, y, x] for y, x in region if (y + down, x + right) in region]
            for region in (INSIDE, EDGE)
        ]
        steps += [mean_of([x**2 for x in some]) for some in moved]
        plateaus.append(mean_of([(np.abs(x) < SAME).astype(float) for x in moved[0]]))
    energies = [np.log(x + LEAST) for x in (*contrast, *details, *steps)]
    shares = [np.log(x + FEW) for x in plateaus]
    of_channels = [x[c] for c in range(len(image)) for x in brightness]
    return [*of_channels, *np.abs(brightness[0] - color), *energies, *shares]


def test_they_are_the_formulas() -> None:
    real, images = drawn(30, 0), drawn(3, 1)
    statistics = Statistics.of(real, AREA)
    around = {(y, x) for y, x in product(range(12), range(11))} - NEAR
    around = {(y, x) for y, x in around if max(0, 2 - y, y - 9, 1 - x, x - 9) <= 4}  # all that the texture reaches
    color = np.mean([[image[c, y, x] for y, x in INSIDE] for c in range(2) for image in real.numpy()], 1)
    color = color.reshape(2, 30).mean(1)
    expected = [twin(image, around, color) for image in images.numpy().astype(float)]
    torch.testing.assert_close(statistics.values(images), torch.tensor(expected).float(), rtol=1e-4, atol=1e-4)


def test_they_are_uncorrelated_among_real_images() -> None:
    real = drawn(400, 0)
    found = Statistics.of(real, AREA)(real).double()
    assert found.mean(0).abs().max() < 1e-4
    correlation = torch.corrcoef(found.T)
    # the ridge keeps what hardly varies near zero, it correlates nothing: float32 does
    assert (correlation - correlation.diag().diag()).abs().max() < 1e-2


@pytest.mark.parametrize("around", [False, True])
def test_without_what_is_around_the_area_alone_counts(around: bool) -> None:
    real = drawn(40, 0)
    changed = torch.where(AREA, real, 1 - real)
    statistics = Statistics.of(real, AREA, around)
    same = torch.allclose(statistics(real), statistics(changed))
    assert same is not around


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (12, 11)], ids=str)
def test_areas_of_any_shape_have_finite_statistics(shape: tuple[int, int]) -> None:
    area = torch.zeros_like(AREA)
    area[: shape[0], : shape[1]] = True
    real = drawn(20, 0)
    for images in (real, torch.zeros_like(real), 1e3 * real):
        assert bool(Statistics.of(real, area)(images).isfinite().all())
    assert bool(Statistics.of(torch.full_like(real, 0.5), area)(real).isfinite().all())


def test_statistics_tell_faded_images_whose_contrast_varies_much() -> None:
    """Each image has a contrast of its own, so its pixels hardly say that all have a fifth less of it in an area."""
    generator = torch.Generator().manual_seed(0)
    contrast = torch.rand(400, 1, 1, 1, generator=generator) + 0.2
    images = 0.5 + 0.2 * contrast * torch.randn(400, 1, 12, 11, generator=generator)
    real, fake = images[:200], images[200:]
    faded = torch.where(AREA, 0.5 + 0.8 * (fake - 0.5), fake)
    statistics = Statistics.of(real, AREA)
    apart = [(statistics(x).mean(0) - statistics(real).mean(0)).norm() for x in (faded, fake)]
    assert apart[0] > 3 * apart[1]
