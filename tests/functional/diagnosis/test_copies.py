# SPDX-License-Identifier: Apache-2.0
"""Images that come over and over, and such as only look alike beside noisy ones."""

import pytest
import torch
from torch import Tensor

from genmonitor.functional.diagnosis.copies import repeats
from genmonitor.functional.diagnosis.images import Images

N = 120


def shapes(n: int, seed: int) -> Tensor:
    """Smooth images of a few directions."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(4, 64, generator=torch.Generator().manual_seed(9))
    return (torch.randn(n, 4, generator=generator) @ directions).view(n, 1, 8, 8) / 20 + 0.5


def noisy(images: Tensor, size: float = 0.3) -> Tensor:
    return images + size * torch.randn(images.shape, generator=torch.Generator().manual_seed(3))


def test_images_without_the_noise_of_real_ones_are_no_copies() -> None:
    found = repeats(Images.of(shapes(N, 0), noisy(shapes(N, 1)), 0))
    assert found.share < 0.05
    assert found.p > 0.001


@pytest.mark.parametrize("jitter", [0.0, 0.01])
def test_few_images_over_and_over_are_copies_beside_noisy_real_ones(jitter: float) -> None:
    few = shapes(20, 0)[torch.arange(N) % 20]
    found = repeats(Images.of(noisy(few, jitter), noisy(shapes(N, 1)), 0))
    assert found.share > 0.9
    assert found.p < 1e-6


def test_one_image_over_and_over_is_copied() -> None:
    assert repeats(Images.of(shapes(1, 0).expand(N, -1, -1, -1), shapes(N, 1), 0)).share > 0.9
