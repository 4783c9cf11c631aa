# SPDX-License-Identifier: Apache-2.0
"""Kinds of real images that a generator never draws, and what they have in common."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor import diagnose
from genmonitor.functional.diagnosis.images import Images
from genmonitor.functional.diagnosis.missing import missing_kinds
from genmonitor.functional.diagnosis.readings import READINGS

COLORS = torch.tensor([[0.9, 0.2, 0.2], [0.2, 0.8, 0.3], [0.2, 0.3, 0.9]])


def balls(n: int, seed: int, colors: int = 3) -> Tensor:
    """Balls on gray in a random place, the first of some colors as often as the others."""
    generator = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    center = 5 + 6 * torch.rand(2, n, 1, 1, generator=generator)
    inside = torch.sigmoid(3 * (4 - ((y - center[0]) ** 2 + (x - center[1]) ** 2).sqrt()))[:, None]
    color = COLORS[len(COLORS) - colors :][torch.randint(colors, (n,), generator=generator)][:, :, None, None]
    noise = 0.01 * torch.randn(n, 3, 16, 16, generator=generator)
    return 0.5 + inside * (color - 0.5) + noise


def images(fake: Tensor, real: Tensor) -> Images:
    return Images.of(fake, real, 0, READINGS)


def test_a_color_without_samples_is_found_with_its_share_its_reading_and_its_images() -> None:
    real = balls(400, 1)
    found = missing_kinds(images(balls(400, 2, colors=2), real))
    assert found is not None
    assert found.p < 1e-6
    assert found.share == pytest.approx(1 / 3, abs=0.08)
    assert found.readings[0].reading.name == "red above the other colors by"
    assert found.readings[0].fake > 0.05 > found.readings[0].real
    red = real[list(found.examples)].mean((2, 3))
    assert bool((red[:, 0] > red[:, 1:].amax(1)).all())


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_missing_by_chance_or_where_images_are_only_noisy(seed: int) -> None:
    fake, real = balls(300, 2 * seed + 10), balls(300, 2 * seed + 11)
    assert missing_kinds(images(fake, real)) is None
    assert missing_kinds(images(fake + 0.1 * torch.randn(fake.shape), real)) is None


def test_too_few_images_have_no_kinds() -> None:
    assert missing_kinds(images(balls(60, 1), balls(60, 2))) is None


def test_the_first_line_says_what_is_missing() -> None:
    first = diagnose(fake=balls(400, 2, colors=2), real=balls(400, 1))
    sentence = str(first.findings[0])
    assert "Hardly ever sampled: 3" in sentence
    assert "of the real images, with red above the other colors by 0." in sentence
    assert len(first.examples["real, hardly ever sampled"]) == 6


def test_two_colors_without_samples_are_told_by_the_one_that_is_left() -> None:
    sentence = str(diagnose(fake=balls(400, 2, colors=1), real=balls(400, 1)).findings[0])
    assert "Hardly ever sampled: 6" in sentence
    assert "of the real images, with blue below the other colors by 0." in sentence


FAULTS = {"other channels": lambda x: x.flip(1), "moved": lambda x: F.pad(x, (3, 0, 0, 0), "replicate")[..., :-3]}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_known_fault_of_all_images_is_no_missing_kind(fault: str) -> None:
    fake, real = FAULTS[fault](balls(200, 2, colors=2)), balls(200, 1, colors=2)
    assert missing_kinds(images(fake, real)) is not None
    first = diagnose(fake=fake, real=real).findings[0]
    assert first.kinds
    assert "Hardly ever" not in str(first)
