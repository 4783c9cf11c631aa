# SPDX-License-Identifier: Apache-2.0
"""Fault models: what each does to images, for any size, and that they are described for readers."""

import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from genmonitor.functional.diagnosis.kinds import FAULT_MODELS, KINDS, FaultModel, Kind, in_words
from genmonitor.functional.diagnosis.kinds.shape import averaged, largest_beside

SHAPES = [(1, 8, 8), (3, 9, 7), (5, 4, 6), (3, 1, 1)]
NAMES = [
    "brighter",
    "darker",
    "color",
    "faded",
    "stronger",
    "blurred",
    "sharpened",
    "noisy",
    "periodic",
    "shifted",
    "blank",
    "clipped",
    "posterized",
    "thicker",
    "thinner",
    "less_varied",
    "modes",
    "misfit",
    "copies",
    "mirrored",
    "rotated",
    "zoomed",
    "gamma",
    "desaturated",
    "oversaturated",
    "hue",
    "channels_swapped",
    "compressed",
    "pixelated",
]


def drawn(shape: tuple[int, ...], n: int = 40, seed: int = 0) -> Tensor:
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


def model(name: str, unit: str = "") -> Kind:
    return next(x for x in FAULT_MODELS if x.name == name and unit in x.unit)


def put(name: str, images: Tensor, strength: float, unit: str = "") -> Tensor:
    return model(name, unit).apply(images, strength, torch.Generator().manual_seed(0))


def test_every_kind_is_described() -> None:
    assert set(NAMES) == set(KINDS)
    assert all(kind.words and kind.change and kind.__doc__ for kind in KINDS.values())
    assert all(bool(kind.cause) == bool(kind.source) for kind in KINDS.values())


KINDS_OF_NO_MODEL = [kind() for kind in KINDS.values() if kind.name in ("modes", "copies")]


@pytest.mark.parametrize("kind", [*FAULT_MODELS, *KINDS_OF_NO_MODEL], ids=lambda kind: f"{kind.name} {kind.unit}")
def test_every_strength_is_said_in_ordinary_numbers_and_without_its_sign(kind: Kind) -> None:
    unit = "of the range in red, green × -0.5" if kind.name == "color" else kind.unit
    low, high = kind.bounds
    tried = {sign * size for size in (*map(abs, kind.strengths), 0.003, 0.07, 0.999, 12.5, 134.2) for sign in (1, -1)}
    for strength in sorted(x for x in tried if low <= x <= high):
        name, size, said_unit = kind.named(strength)
        said = in_words(name, size, said_unit or unit)
        assert not re.search(r"\de[+-]\d|[-−]\d|[{}]", said), said
        assert not kind.opposite or in_words(kind.name, abs(size), unit) != said or strength > 0
    assert in_words("vignette", -134.2, "px") == "vignette −134 px"


def test_a_color_is_said_with_the_change_of_each_channel() -> None:
    assert in_words("color", -0.088, "of the range in red, green × 0.4, blue × -0.5") == (
        "red − 0.088, green − 0.035, blue + 0.044 of the range"
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_images_keep_their_shape_and_are_not_changed_in_place(shape: tuple[int, ...]) -> None:
    real, fake = drawn(shape), drawn(shape, seed=1) + 0.2 * torch.arange(shape[0]).view(-1, 1, 1)
    before, area = real.clone(), torch.ones(shape[1:], dtype=torch.bool)
    for x in FAULT_MODELS:
        made = x.measured(fake, real, area)
        if made is None:
            continue
        assert isinstance(made, FaultModel)
        for strength in made.strengths:
            out = made.apply(real, strength, torch.Generator().manual_seed(0))
            assert out.shape == real.shape
            assert bool(out.isfinite().all())
            assert torch.equal(real, before)


def test_faults_are_what_their_units_say() -> None:
    x = drawn((1, 12, 12))
    assert torch.equal(put("shifted", x, 2, "right")[..., 2:], x[..., :-2])
    assert torch.equal(put("shifted", x, -1, "down")[..., :-1, :], x[..., 1:, :])
    assert float((put("noisy", x, 0.05) - x).std()) == pytest.approx(0.05, rel=0.05)
    assert put("stronger", x, -0.2, "contrast").std((1, 2, 3)) == pytest.approx(0.8 * x.std((1, 2, 3)), rel=1e-4)
    assert put("less_varied", x, 0.3).var(0) == pytest.approx(0.49 * x.var(0), rel=1e-4)
    assert float(put("clipped", x, 0.1).max()) == pytest.approx(0.9)
    assert float(put("clipped", x, -0.1).min()) == pytest.approx(0.1)
    assert torch.equal(put("mirrored", x, 1.0), x.flip(3))
    assert float((put("mirrored", x, 0.5) != x).any(3).any(2).float().mean()) == pytest.approx(0.5)
    assert put("rotated", x, 90.0) == pytest.approx(x.rot90(1, (2, 3)), abs=1e-5)
    assert put("rotated", x, -90.0) == pytest.approx(x.rot90(-1, (2, 3)), abs=1e-5)
    smooth = F.interpolate(x[..., :4, :4], size=(24, 24), mode="bilinear", align_corners=False)
    assert put("zoomed", smooth, 1.0)[..., 2:-2, 2:-2] == pytest.approx(
        F.interpolate(smooth[..., 6:18, 6:18], scale_factor=2, mode="bilinear", align_corners=False)[..., 2:-2, 2:-2],
        abs=1e-5,
    )
    assert put("gamma", x, 2.0) == pytest.approx(x.square(), abs=1e-6)
    blocks = put("pixelated", x, 3)
    assert blocks[..., ::3, ::3].repeat_interleave(3, 2).repeat_interleave(3, 3) == pytest.approx(blocks)
    assert blocks.mean((2, 3)) == pytest.approx(x.mean((2, 3)), abs=1e-6)


def test_faults_of_color_are_what_their_units_say() -> None:
    x = drawn((3, 9, 7))
    spread = x - x.mean(1, keepdim=True)
    for strength, left in ((0.4, 0.6), (-0.5, 1.5)):
        out = put("desaturated", x, strength)
        assert out - out.mean(1, keepdim=True) == pytest.approx(left * spread, abs=1e-6)
    assert put("hue", x, 120.0) == pytest.approx(x.roll(1, 1), abs=1e-6)
    assert put("hue", x, -120.0) == pytest.approx(x.roll(-1, 1), abs=1e-6)


@pytest.mark.parametrize("order", [(2, 1, 0), (1, 0, 2), (0, 2, 1), (1, 2, 0), (2, 0, 1)], ids=str)
def test_the_order_of_channels_is_measured(order: tuple[int, ...]) -> None:
    sides = [drawn((3, 8, 8), seed=seed) * torch.tensor([1.0, 0.7, 0.4]).view(3, 1, 1) for seed in (0, 1)]
    everywhere = torch.ones(8, 8, dtype=torch.bool)
    made = model("channels_swapped").measured(sides[0][:, list(order)], sides[1], everywhere)
    assert made is not None
    assert torch.equal(made.apply(sides[0], 1.0, torch.Generator()), sides[0][:, list(order)])
    assert model("channels_swapped").measured(*sides, everywhere) is None


def test_compression_is_tried_only_where_blocks_show() -> None:
    smooth = F.interpolate(drawn((3, 4, 4), 80), size=(32, 32), mode="bilinear", align_corners=False)
    fake, real = smooth[:40], smooth[40:]
    everywhere = torch.ones(32, 32, dtype=torch.bool)
    saved = put("compressed", fake, 5)
    assert model("compressed").measured(saved, real, everywhere) is not None
    assert model("compressed").measured(fake, real, everywhere) is None
    errors = [float((put("compressed", fake, quality) - fake).abs().mean()) for quality in (5, 20, 75)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.02


def test_images_are_posterized_where_they_have_few_levels_and_real_ones_more() -> None:
    real, area = drawn((1, 8, 8)), torch.ones(8, 8, dtype=torch.bool)
    (posterized,) = [x for x in FAULT_MODELS if x.name == "posterized"]
    fake = (3 * drawn((1, 8, 8), seed=1)).round() / 3
    made = posterized.measured(fake, real, area)
    assert made is not None
    assert len(made.apply(real, 4, torch.Generator()).unique()) == 4
    noisy = real + 0.04 * torch.randn(real.shape, generator=torch.Generator().manual_seed(2))
    assert posterized.measured(noisy, real, area) is None
    assert posterized.measured(fake, fake, area) is None
    assert posterized.measured(fake + 0.01 * noisy, fake, area) is None


def test_bright_parts_grow_whether_they_are_strokes_or_what_is_around_them() -> None:
    stroke = torch.zeros(1, 1, 9, 9)
    stroke[..., 3:6, 1:8] = 1.0
    assert int(put("thicker", stroke, 1).sum()) == 5 * 9
    assert int(put("thicker", stroke, -1).sum()) == 1 * 5
    assert int((1 - put("thicker", 1 - stroke, 1)).sum()) == 1 * 5


def test_the_color_of_blanks_is_one_that_real_images_lack() -> None:
    images = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    images[:100] = 0.7  # half of the real images are plain, too
    fake = images.clone()
    fake[100:140] = 0.2
    (blank,) = [x for x in FAULT_MODELS if x.name == "blank"]
    made = blank.measured(fake, images, torch.ones(8, 8, dtype=torch.bool))
    assert made is not None
    torch.testing.assert_close(made.apply(images, 1.0, torch.Generator()), torch.full_like(images, 0.2))
    assert blank.measured(images[100:], images, torch.ones(8, 8, dtype=torch.bool)) is None


@settings(max_examples=25, deadline=None)
@given(st.floats(0.3, 3), st.integers(2, 9), st.integers(2, 9))
def test_blur_keeps_constants_and_evens_out(sigma: float, h: int, w: int) -> None:
    x = drawn((1, h, w), n=3)
    blurred = put("blurred", x, sigma)
    torch.testing.assert_close(put("blurred", torch.ones_like(x), sigma), torch.ones_like(x))
    # a mean of pixels by weights that sum to one: float32 rounding alone may add to the range
    assert float(blurred.max()) <= float(x.max()) + 1e-5
    assert float(blurred.min()) >= float(x.min()) - 1e-5


def test_a_color_is_the_direction_in_which_channels_moved() -> None:
    real, fake = drawn((3, 8, 8), 100), drawn((3, 8, 8), 100, seed=1)
    area = torch.ones(8, 8, dtype=torch.bool)
    color = next(x for x in FAULT_MODELS if x.name == "color")
    fake[:, 0] += 0.2
    made = color.measured(fake, real, area)
    assert made is not None
    assert made.unit == "of the range in red"
    moved = (made.apply(real, 0.1, torch.Generator()) - real).mean((0, 2, 3))
    assert moved.tolist() == pytest.approx([0.1, 0, 0], abs=1e-6)
    assert color.measured(real + 0.1, real, area) is None


def test_brightness_is_measured_where_most_of_an_area_is_brighter() -> None:
    real, area = drawn((3, 8, 8), 100), torch.zeros(8, 8, dtype=torch.bool)
    area[:, :4] = True
    fake = real.clone()
    fake[..., :3] += 0.12
    (brighter,) = (x for x in FAULT_MODELS if x.name == "brighter")
    made = brighter.measured(fake, real, area)
    assert made is not None
    assert made.strengths == pytest.approx((0.06, 0.12, 0.24))
    assert torch.equal(made.apply(real, 0.1, torch.Generator()), real + 0.1)
    assert brighter.measured(real, real, area) is None


def test_means_and_largest_of_neighbors_are_those_of_pooling() -> None:
    images = drawn((2, 5, 7), 3)
    around = F.pad(images, (1, 1, 1, 1), "replicate")
    torch.testing.assert_close(averaged(images), F.avg_pool2d(around, 3, 1))
    assert torch.equal(largest_beside(images), F.max_pool2d(around, 3, 1))


def test_a_pattern_is_folded_out_of_the_mean_difference() -> None:
    real, fake = drawn((1, 8, 8), 400), drawn((1, 8, 8), 400, seed=1)
    checkerboard = (-1.0) ** (torch.arange(8)[:, None] + torch.arange(8))
    periodic = next(x for x in FAULT_MODELS if x.name == "periodic")
    made = periodic.measured(fake + 0.5 * checkerboard, real, torch.ones(8, 8, dtype=torch.bool))
    assert made is not None
    pattern = made.apply(real, 1.0, torch.Generator()) - real
    # its error is that of a mean over 400 images and 16 pixels of a cell
    torch.testing.assert_close(pattern[0, 0], checkerboard, atol=0.05, rtol=0)


@pytest.mark.parametrize("period", [2, 4, 8])
def test_no_multiple_of_a_patterns_period_is_tried(period: int) -> None:
    fake, real = (drawn((1, 16, 16), 200, seed) for seed in (0, 1))
    stripes = (torch.arange(16) % period == 0) * torch.ones(16, 16)
    area = torch.ones(16, 16, dtype=torch.bool)
    made = [x.measured(fake + stripes, real, area) for x in FAULT_MODELS if x.name == "periodic"]
    assert [x.unit for x in made if x][-1] == f"of the range, period {period} px"


def test_a_gradient_is_no_pattern() -> None:
    real, gradient = drawn((1, 16, 16), 200), torch.linspace(0, 1, 16).expand(16, 16)
    patterns = [x for x in FAULT_MODELS if x.name == "periodic"]
    assert not any(x.measured(real + gradient, real, torch.ones(16, 16, dtype=torch.bool)) for x in patterns)


def test_a_plain_area_whose_color_changed_is_not_blank() -> None:
    area = torch.zeros(8, 8, dtype=torch.bool)
    area[:, :2] = True
    real, fake = drawn((3, 8, 8), 100), drawn((3, 8, 8), 100, seed=1)
    fake[:, :, area], real[:, :, area] = 0.6, 0.6
    fake[:, 0, area] += 0.13
    (blank,) = (x for x in FAULT_MODELS if x.name == "blank")
    (color,) = (x for x in FAULT_MODELS if x.name == "color")
    assert blank.measured(fake, real, area) is None
    found = color.measured(fake, real, area)
    assert found is not None
    assert found.strengths[1] == pytest.approx(0.13)
    fake[10:, 0, area] -= 0.13  # a tenth of the images alone
    assert blank.measured(fake, real, area) is not None


def test_a_color_is_measured_beside_what_is_around_where_images_differ_more_than_it() -> None:
    backgrounds = drawn((3, 1, 1), 400).expand(-1, -1, 12, 12).clone(), drawn((3, 1, 1), 400, 1).expand(-1, -1, 12, 12)
    area = torch.zeros(12, 12, dtype=torch.bool)
    area[:, :2] = True
    fake, real = backgrounds
    fake[:, 0, area] += 0.03
    (color,) = (x for x in FAULT_MODELS if x.name == "color")
    found = color.measured(fake, real, area)
    assert found is not None
    assert found.unit == "of the range in red"
    assert color.measured(real, fake, torch.ones_like(area)) is None


def test_a_step_in_an_area_is_no_pattern() -> None:
    area, within = torch.zeros(2, 32, 32, dtype=torch.bool)
    area[8:21, 6:17], within[9:20, 7:16] = True, True
    fake, real = (0.02 * drawn((1, 32, 32), 200, seed) for seed in (0, 1))
    step, pattern = fake + 0.1 * within, fake.clone()
    pattern[:, :, ::2, ::2] += 0.1
    patterns = [x for x in FAULT_MODELS if x.name == "periodic"]
    assert any(x.measured(pattern, real, area) for x in patterns)
    assert not any(x.measured(step, real, area) for x in patterns)
