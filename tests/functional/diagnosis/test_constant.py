# SPDX-License-Identifier: Apache-2.0
"""Places that are the same in all generated images."""

import pytest
import torch
from torch import Tensor

from genmonitor import diagnose
from genmonitor.functional.diagnosis.constant import constant_place

N = 200


def textures(seed: int) -> Tensor:
    """Coarse random textures in color."""
    coarse = torch.rand(N, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(coarse, scale_factor=2, mode="nearest")


def test_a_block_is_found_where_everything_else_is_wrong_too() -> None:
    fake = 0.8 * textures(1) + 0.1 * torch.rand(N, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    fake[:, :, :5, :6] = 0.5
    found = constant_place(fake, textures(2))
    assert found is not None
    assert (int(found.mask.sum()), int(found.mask[:5, :6].sum())) == (30, 30)
    assert found.spread < 0.01
    first = diagnose(fake=fake, real=textures(2)).findings[0]
    assert str(first).startswith("Upper left corner, 6×5 px: nearly the same in all images, varies 0 % as much")
    assert first.remedy.endswith("?")


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
    assert constant_place(fake, real) is None
