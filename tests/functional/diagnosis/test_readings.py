# SPDX-License-Identifier: Apache-2.0
"""Readings: each sees what it is named for, says nothing by chance, and two that mean the same are said once."""

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import rankdata
from torch import Tensor

from genmonitor.functional.diagnosis.readings import READINGS, Look, Reading, differing, read, usable_readings
from genmonitor.functional.diagnosis.readings.compare import Said, p_values, standardized_difference

N, SIDE = 150, 24


def figures(n: int = N, seed: int = 0, channels: int = 3) -> Tensor:
    """Ellipses of some color at some place on a dark ground, some leaning, with a soft edge."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(n, 8, 1, 1, generator=generator)
    at = torch.linspace(-1, 1, SIDE)
    y, x = at[:, None] - 0.4 * (u[:, 0] - 0.5), at - 0.4 * (u[:, 1] - 0.5)
    x = x + 0.6 * (u[:, 2] - 0.5) * y
    inside = torch.sigmoid(30 * (0.4 + 0.2 * u[:, 3] - (x**2 + y**2).sqrt()))[:, None]
    color = 0.35 + 0.45 * torch.rand(n, channels, 1, 1, generator=generator)
    return 0.1 + inside * color * (1 + 0.3 * y[:, None])


def at_every(period: int) -> Tensor:
    return torch.arange(SIDE) // period % 2 * 1.0


def noise(x: Tensor) -> Tensor:
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(9))


CHANGES = {
    "darkest pixels": lambda x: x + 0.1,
    "brightest pixels": lambda x: x.clamp_max(0.5),
    "brightness": lambda x: x + 0.1,
    "contrast": lambda x: 0.5 * x,
    "brightness of the border": lambda x: x + 0.1,
    "corners brighter than middle by": lambda x: 0.5 * x,
    "distance from the mean image": lambda x: x.mean(0) + 0.5 * (x - x.mean(0)),
    "saturation": lambda x: x.mean(1, keepdim=True).expand_as(x),
    "saturation of the background": lambda x: x + torch.tensor([0.2, 0, 0])[:, None, None],
    "red above the other colors by": lambda x: x + torch.tensor([0.2, 0, 0])[:, None, None],
    "green above the other colors by": lambda x: x + torch.tensor([0, 0.2, 0])[:, None, None],
    "blue above the other colors by": lambda x: x + torch.tensor([0, 0, 0.2])[:, None, None],
    "color contrast of single pixels": lambda x: x + 0.05 * noise(x),
    "number of colors": lambda x: (3 * x).round() / 3,
    "pixels of the 8 commonest values": lambda x: (3 * x).round() / 3,
    "flat pixels": lambda x: x + 0.05 * noise(x),
    "grain in calm parts": lambda x: x + 0.05 * noise(x),
    "steepest edges": lambda x: F.avg_pool2d(x, 5, 1, 2),
    "width of edges": lambda x: F.avg_pool2d(x, 5, 1, 2),
    "contrast that is fine detail": lambda x: x + 0.05 * noise(x),
    "single pixels that stand out": lambda x: torch.where(noise(x[:, :1]) > 2, 1.0, x),
    "every second row stands out by": lambda x: x + 0.1 * at_every(1)[:, None],
    "every second column stands out by": lambda x: x + 0.1 * at_every(1),
    "checkerboard of single pixels": lambda x: x + 0.1 * (at_every(1) - at_every(1)[:, None]).abs(),
    "outermost pixels brighter by": lambda x: F.pad(x[:, :, 1:-1, 1:-1], (1, 1, 1, 1), value=0.3),
    "step at every second line larger by": lambda x: F.interpolate(F.avg_pool2d(x, 2), scale_factor=2),
    "step at every fourth line larger by": lambda x: F.interpolate(F.avg_pool2d(x, 4), scale_factor=4),
    "step at every eighth line larger by": lambda x: F.interpolate(F.avg_pool2d(x, 8), scale_factor=8),
    "area of the figure": lambda x: F.max_pool2d(x, 7, 1, 3),
    "faint traces on the background": lambda x: x + 0.08 * (noise(x) > 1),
    "pieces of the figure": lambda x: x * (at_every(4) < 0.5),
    "holes and gaps in the figure": lambda x: torch.where(
        x.new_ones(SIDE, SIDE).tril().bool(), x, 0.1 + 0.8 * at_every(3)
    ),
    "center of the figure from the left": lambda x: x.roll(3, 3),
    "center of the figure from the top": lambda x: x.roll(3, 2),
    "slanted to the right by": lambda x: torch.stack(
        [x[:, :, i].roll((SIDE // 2 - i) // 3, 2) for i in range(SIDE)], 2
    ),
    "left-right symmetry": lambda x: x.roll(4, 3),
    "left half brighter than right by": lambda x: x.roll(3, 3),
    "upper half brighter than lower by": lambda x: x.roll(3, 2),
    "horizontal edges among all": lambda x: F.avg_pool2d(x, (1, 9), 1, (0, 4)),
}


def test_every_reading_has_a_change_to_see_and_words() -> None:
    assert {x.name for x in READINGS} == set(CHANGES)
    assert {x.family for x in READINGS} == {"tone", "color", "variety", "detail", "pattern", "shape"}
    assert all(x.value(0.123456) in {"12 %", "0.12", "0.12 px", "0.12 px per px"} for x in READINGS)


@pytest.mark.parametrize("name", CHANGES)
def test_a_reading_sees_the_change_that_it_is_named_for(name: str) -> None:
    (reading,) = [x for x in READINGS if x.name == name]
    real, fake = figures(), CHANGES[name](figures(seed=1))
    values = [read([reading], x) for x in (fake, real)]
    assert float(p_values(*values, seed=0)) <= 0.001
    assert abs(float(values[0].mean() - values[1].mean())) >= reading.visible
    assert float(p_values(read([reading], figures(seed=2)), values[1], seed=0)) > 0.002


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 28, 28), (3, 8, 9), (4, 16, 16)], ids=str)
def test_readings_of_any_images_are_numbers(shape: tuple[int, ...]) -> None:
    images = torch.rand(20, *shape, generator=torch.Generator().manual_seed(0))
    readings = usable_readings(READINGS, images)
    for some in (images, torch.zeros_like(images), torch.full_like(images, 3.0)):
        assert bool(read(readings, some).isfinite().all())
    assert any(x.needs_color for x in readings) == (shape[0] >= 3)
    assert not any(x.needs_place for x in usable_readings(READINGS, images, aligned=False))


def test_ranks_differ_as_in_the_test_of_wilcoxon() -> None:
    generator = torch.Generator().manual_seed(0)
    fake, real = ((8 * torch.rand(n, 2, generator=generator)).round().double() for n in (40, 60))
    for column, found in enumerate(standardized_difference(fake, real)):
        ranks = rankdata(torch.cat([fake, real])[:, column])
        error = (ranks.var() * 60 / (40 * 99)) ** 0.5
        assert float(found) == pytest.approx((ranks[:40].mean() - ranks.mean()) / error)


def test_chance_says_nothing_more_often_than_the_level() -> None:
    said = 0
    for run in range(40):
        fake, real = figures(60, 2 * run + 100), figures(60, 2 * run + 101)
        said += float(p_values(read(READINGS, fake), read(READINGS, real), seed=run).min()) <= 0.05
    assert said <= 6  # of 40 at 0.05 more are one in 100


def test_what_is_said_is_visible_with_both_values_and_once() -> None:
    real, fake = figures(), figures(seed=1)
    fake[: N // 2] += 0.1 * at_every(1)
    found = differing(READINGS, read(READINGS, fake), read(READINGS, real), 0.01, seed=0)
    first = next(x for x in found if x.reading.name == "every second column stands out by")
    assert first.share == pytest.approx(0.5, abs=0.06)
    assert set(first.order[: N // 4].tolist()) <= set(range(N // 2))
    assert "every second column stands out by 0." in str(first)
    assert len(found) <= 3
    assert not differing(READINGS, *(read(READINGS, x) for x in (real + 0.001, real)), 0.01, seed=0)


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.name)
def test_a_value_below_zero_has_the_opposite_word_for_its_sign(reading: Reading) -> None:
    values = reading.of(Look(torch.rand(N, 3, 32, 32, generator=torch.Generator().manual_seed(0))))
    assert bool(reading.signs[0]) == (
        float(values.min()) < 0 and reading.name != "left-right symmetry"
    )  # a correlation
    if not reading.signs[0]:
        return
    above, below = reading.signs
    other = reading.name.replace(above, below)
    for number, name, beside in ((-0.07, other, f"{above} by "), (0.07, reading.name, f"{below} by ")):
        size, same = reading.value(0.07), reading.value(0.02)
        assert reading.beside(number, number / 3.5) == (f"{name} {size}", same)
        assert reading.beside(number, number / -3.5) == (f"{name} {size}", f"{beside}{same}")
        assert reading.beside(number, 0.0) == (f"{name} {size}", reading.value(0.0))


def test_textures_have_no_figure():
    texture = torch.rand(N, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    framed = torch.nn.functional.pad(texture[..., 4:-4, 4:-4], (4, 4, 4, 4), value=0.3)
    (of_texture, of_framed) = ({x.name for x in usable_readings(READINGS, 255 * x)} for x in (texture, framed))
    assert of_framed - of_texture == {x.name for x in READINGS if x.needs_background} != set()


@pytest.mark.parametrize(("strength", "first"), [(0.1, "other"), (0.01, "pixels of the 8 commonest values")])
def test_a_reading_that_nobody_sees_as_such_is_first_only_if_it_is_much_stronger(strength: float, first: str) -> None:
    class Other(Reading):
        name, family, visible = "other", "shape", 0.01

        def of(self, look: Look) -> Tensor:
            return look.gray.mean((1, 2))

    (values,) = [x for x in READINGS if x.name == "pixels of the 8 commonest values"]
    noise = torch.randn(2, N, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    real, fake = noise[0] * torch.tensor([3, strength]), noise[1] * torch.tensor([3, strength])
    fake += torch.tensor([100, 1.1 * strength])
    found = differing([values, Other()], fake, real, 0.01, seed=0)
    assert found[0].reading.name == first


@pytest.mark.parametrize("name", ["faint traces on the background", "number of colors"])
@pytest.mark.parametrize("planted", [True, False])
def test_a_reading_of_which_one_side_alone_is_a_fault_is_said_of_that_side(name: str, planted: bool) -> None:
    (reading,) = [x for x in READINGS if x.name == name]
    sides = [read([reading], x) for x in (CHANGES[name](figures(seed=1)), figures())]
    assert bool(differing([reading], *(sides if planted else sides[::-1]), 0.01, seed=0)) == planted


@pytest.mark.parametrize(("fake", "words"), [(0.0, "uneven, flat pixels 0 %"), (0.9, "too smooth, flat pixels 90 %")])
def test_an_indirect_reading_is_said_with_the_word_for_its_side(fake: float, words: str) -> None:
    (flat,) = [x for x in READINGS if x.name == "flat pixels"]
    said = Said(flat, fake, 0.34, 1.0, 0.001, torch.arange(3), torch.arange(3))
    assert str(said) == f"{words}, real 34 % (in 100 % of the images)"
    assert said.beside("was").startswith("flat pixels ")  # its own earlier value is no measure of too much
