# SPDX-License-Identifier: Apache-2.0
"""Blocks of an image that stand out though all of it is wrong."""

import pytest
import torch
from torch import Tensor

from genmonitor import diagnose
from genmonitor.functional.diagnosis.block import Block, block_that_stands_out
from genmonitor.functional.discrepancy_map import discrepancy_map

N = 200


def textures(seed: int) -> Tensor:
    """Coarse random textures in color."""
    coarse = torch.rand(N, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(coarse, scale_factor=2, mode="nearest")


def block_of(fake: Tensor, real: Tensor) -> Block | None:
    return block_that_stands_out(discrepancy_map(fake, real), fake, real)


def test_a_constant_block_is_found_where_everything_else_is_wrong_too() -> None:
    fake = 0.8 * textures(1) + 0.1 * torch.rand(N, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    fake[:, :, :5, :6] = 0.5
    found = block_of(fake, textures(2))
    assert found is not None
    assert (int(found.mask.sum()), int(found.mask[:5, :6].sum())) == (30, 30)
    assert (found.spread < 0.01, found.constant) == (True, True)
    first = diagnose(fake=fake, real=textures(2)).findings[0]
    assert str(first).startswith("Upper left corner, 6×5 px: nearly the same in all images, varies 0 % as much")
    assert first.remedy.endswith("?")


def test_a_block_that_is_far_worse_than_the_rest_is_found() -> None:
    fake = 0.95 * textures(1) + 0.03 * torch.rand(N, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    fake[:, :, 9:, 10:] += 0.3
    found = block_of(fake, textures(2))
    assert found is not None
    assert not found.constant
    assert int(found.mask[9:, 10:].sum()) == 42
    assert int(found.mask.sum()) <= 64  # with its edge


@pytest.mark.parametrize("first", [True, False])
def test_a_block_is_diagnosed_before_the_image_of_which_it_is_a_part(first: bool, monkeypatch) -> None:
    fake, real = textures(1).roll(1, 2), textures(2)
    fake[:, :, 9:, 10:] += 0.3
    mask = torch.zeros(16, 16, dtype=torch.bool)
    mask[9:, 10:] = True
    block = Block(mask, 0.001, 1.0, constant=False) if first else None
    monkeypatch.setattr("genmonitor.evaluation.diagnosed_areas.block_that_stands_out", lambda *args: block)
    found = diagnose(fake=fake, real=real)
    assert found.findings[0].area.name == ("lower right corner, 6×7 px" if first else "whole image")
    assert found.findings[first].area.name == "whole image"
    assert ("lower right corner, 6×7 px" in found.areas) is first


@pytest.mark.parametrize("what", ["nothing", "all alike", "constant in real ones too", "most of it", "no block"])
def test_no_place_is_said_that_is_no_news(what: str) -> None:
    fake, real = textures(1), textures(2)
    if what == "all alike":
        fake = fake.mean(0) + 0.1 * (fake - fake.mean(0))
    if what == "constant in real ones too":
        fake[:, :, :5, :6] = real[:, :, :5, :6] = 0.5
    if what == "most of it":
        fake[:, :, 4:] = 0.5
    if what == "no block":
        fake[:, :, :4, :8] = fake[:, :, :12, :2] = 0.5
    assert block_of(fake, real) is None
