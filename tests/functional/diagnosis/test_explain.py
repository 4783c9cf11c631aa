# SPDX-License-Identifier: Apache-2.0
"""Readings decide whether a fault with a large share is the cause."""

import pytest
import torch

from genmonitor.functional.diagnosis.distance import Distance, pixel_views
from genmonitor.functional.diagnosis.explain import Explained, explained
from genmonitor.functional.diagnosis.fit import Faults, Side
from genmonitor.functional.diagnosis.kinds.tone import Brighter

N, SIZE = 100, 8


def found(area: torch.Tensor, before: list[int], after: list[int]) -> Explained:
    """Explain brighter images by readings that differ in some direction before and after the fault is put in."""
    generator = torch.Generator().manual_seed(0)
    real, fake = 0.5 + 0.1 * torch.randn(2, N, 1, SIZE, SIZE, generator=generator)
    fake[:, :, area] += 0.2

    def wrong(faults: Faults) -> torch.Tensor:
        return torch.tensor(after if faults else before)

    distance = Distance.of(real, pixel_views(real, area), N)
    sides = [Side.of(distance, real, fake, area, (-1.0, 2.0), seed) for seed in (0, 1)]
    out = explained(*sides, [Brighter((0.1, 0.2, 0.4))], wrong, 0.001)
    assert out is not None
    assert out.share > 0.95
    return out


@pytest.mark.parametrize(
    ("before", "after", "near", "identified"),
    [
        pytest.param([1, 1, 1, 0], [0, 0, 0, 0], True, True, id="all readings become right"),
        pytest.param([1, 1, 1, 0], [1, 0, 0, 0], True, True, id="most become right, and nearly all is explained"),
        pytest.param([1, 1, 1, 0], [1, 1, 0, 0], False, False, id="most stay wrong"),
        pytest.param([1, 1, 1, 0], [0, 0, 0, 1], False, False, id="another becomes wrong"),
        pytest.param([1, 1, 1, 0], [-1, 0, 0, 0], False, False, id="one overshoots"),
        pytest.param([], [], True, True, id="none, of features"),
    ],
)
def test_a_fault_is_the_cause_only_if_readings_agree(
    before: list[int], after: list[int], near: bool, identified: bool
) -> None:
    of_image = found(torch.ones(SIZE, SIZE, dtype=torch.bool), before, after)
    assert (of_image.near, of_image.identified) == (near, identified)


@pytest.mark.parametrize(("after", "identified"), [([1, 1, 1], False), ([0, -1, 1], True)])
def test_of_an_inexact_area_some_reading_must_become_right(after: list[int], identified: bool) -> None:
    area = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    area[2:6, 2:6] = True
    assert found(area, [1, 1, 1], after).identified is identified
