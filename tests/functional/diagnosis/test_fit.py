# SPDX-License-Identifier: Apache-2.0
"""The search for the fault that fits: by few images that stand for all."""

import pytest
import torch
from torch import Tensor

from genmonitor.functional.diagnosis.distance import Distance, pixel_views
from genmonitor.functional.diagnosis.fit import Side, ranked
from genmonitor.functional.diagnosis.kinds import FAULT_MODELS, Kind
from genmonitor.functional.diagnosis.kinds.tone import Brighter

N = 200
WHOLE = torch.ones(8, 8, dtype=torch.bool)


def two_classes(n: int, seed: int) -> Tensor:
    """Bars that lie or stand, each as often by chance alone, with some grain."""
    generator = torch.Generator().manual_seed(seed)
    lying, standing = torch.full((2, 8, 8), 0.1)
    lying[3:5], standing[:, 3:5] = 0.6, 0.6
    images = torch.where((torch.rand(n, generator=generator) < 0.5)[:, None, None], lying, standing)
    return images[:, None] + 0.05 * torch.randn(n, 1, 8, 8, generator=generator)


def side(fake: Tensor, real: Tensor) -> Side:
    return Side.of(Distance.of(real, pixel_views(real, WHOLE), len(real)), real, fake, WHOLE, (-1.0, 2.0), seed=0)


def test_the_first_images_have_each_class_as_often_as_all_have() -> None:
    real = two_classes(N, 1)
    first = side(two_classes(N, 2), real).first(40).real
    lies = [float((x[:, 0, 3, 0] > 0.35).double().mean()) for x in (first, real)]
    assert lies[0] == pytest.approx(lies[1], abs=1 / 40)


def test_distances_of_the_first_images_are_about_those_of_all() -> None:
    every = side(two_classes(N, 2) + 0.05, two_classes(N, 1))
    few = every.first(48)
    assert few.left(()) == pytest.approx(every.left(()))
    _, faults = ranked(every, [Brighter((0.02, 0.04, 0.1, 0.2))])[0]
    assert faults[0].strength == pytest.approx(0.05, rel=0.1)
    assert abs(few.left(faults) - every.left(faults)) < 0.1 * every.left(())


@pytest.mark.parametrize("together", [1, 2 * N * 2 * N, 10**9])
def test_distances_of_several_are_those_of_each(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    monkeypatch.setattr("genmonitor.functional.diagnosis.fit.TOGETHER", together)
    several = side(two_classes(N - 10, 2) + 0.05, two_classes(N, 1))
    changed = [several.real + shift for shift in (0.0, 0.02, 0.05, 0.1, 0.3)]
    distance, fake = several.distance, several.distance.embedded(two_classes(N - 10, 2) + 0.05)
    alone = [distance.between(distance.embedded(x), fake) for x in changed]
    assert several.left_by(changed) == pytest.approx(alone, rel=1e-4, abs=1e-3)


def test_the_first_of_the_first_are_those_of_all() -> None:
    every = side(two_classes(N, 2) + 0.05, two_classes(N, 1))
    torch.testing.assert_close(every.first(80).first(30).real, every.first(30).real)
    assert every.first(80).first(30).left(()) == pytest.approx(every.left(()))
    assert every.first(N) is every


@pytest.mark.parametrize("model", [x for x in FAULT_MODELS if isinstance(x, Kind) and x.whole], ids=str)
def test_strengths_stay_within_their_bounds_where_nothing_is_wrong(model: Kind) -> None:
    draws = (torch.rand(N, 1, 8, 8, generator=torch.Generator().manual_seed(seed)).cumsum(3) / 8 for seed in (1, 2))
    found = ranked(side(*draws), [model])
    low, high = model.bounds
    assert all(low <= faults[0].strength <= high and faults[0].strength for _, faults in found)
