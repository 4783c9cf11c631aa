# SPDX-License-Identifier: Apache-2.0
"""The diagnosis: planted faults get their names, nothing wrong gets none, and bad input says what is bad."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor

import genmonitor
from genmonitor import PixelPartition, diagnose
from genmonitor.evaluation import Finding
from genmonitor.evaluation.diagnosed_areas import fault_kinds
from genmonitor.evaluation.diagnosis import _with_others
from genmonitor.evaluation.single_samples import SingleSamples
from genmonitor.findings import words
from genmonitor.findings.finding import CLAIM, Area, FaultKind, headlines
from genmonitor.functional.diagnosis.explain import IN_PLACE, Explained
from genmonitor.functional.diagnosis.fit import PutFault
from genmonitor.functional.diagnosis.kinds import KINDS, Kind
from genmonitor.functional.diagnosis.readings import READINGS, Look, Reading, Said
from genmonitor.functional.permutation import LEVEL

N = 200
WHOLE = torch.ones(16, 16, dtype=torch.bool)
CORNER = torch.zeros(16, 16, dtype=torch.bool)
CORNER[6:, 6:] = True


def disks(n: int, seed: int, channels: int = 1) -> Tensor:
    """Soft disks of several places, sizes and colors on dark, with a little grain."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: float, high: float, channels: int = 1) -> Tensor:
        return low + (high - low) * torch.rand(n, channels, 1, 1, generator=generator)

    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    distance = ((x - draw(5, 11)) ** 2 + (y - draw(5, 11)) ** 2).sqrt()
    disk = torch.sigmoid(2 * (draw(2.5, 5) - distance)) * draw(0.4, 0.8, channels)
    return 0.1 + disk + 0.02 * torch.randn(n, channels, 16, 16, generator=generator)


def smoothed(x: Tensor) -> Tensor:
    taps = torch.tensor([0.25, 0.5, 0.25])
    kernel = (taps[:, None] * taps).expand(x.shape[1], 1, 3, 3)
    return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), kernel, groups=x.shape[1])


def noise(x: Tensor) -> Tensor:
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(5))


FAULTS: dict[str, tuple[Callable[[Tensor], Tensor], float | None]] = {
    "brighter": (lambda x: x + 0.1, 0.1),
    "darker": (lambda x: x - 0.1, 0.1),
    "faded": (lambda x: 0.7 * x + 0.3 * x.mean((1, 2, 3), keepdim=True), 0.3),
    "blurred": (smoothed, 0.71),
    "noisy": (lambda x: x + 0.08 * noise(x), 0.08),
    "periodic": (lambda x: x + 0.08 * (-1.0) ** (torch.arange(16)[:, None] + torch.arange(16)), 0.08),
    "shifted": (lambda x: x.roll(2, 3), 2),
    "clipped": (lambda x: x.clamp_max(0.5), None),
    "less_varied": (lambda x: x.mean(0) + 0.6 * (x - x.mean(0)), 0.4),
    "thinner": (lambda x: -F.max_pool2d(-x, 3, 1, 1), 1),
    "blank": (lambda x: torch.where(torch.arange(len(x)).view(-1, 1, 1, 1) % 5 == 0, 0.0, x), 0.2),
}


@pytest.mark.parametrize("area", [CORNER, pytest.param(WHOLE, marks=pytest.mark.slow)], ids=["corner", "whole"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_gets_its_name(name: str, area: Tensor) -> None:
    fault, strength = FAULTS[name]
    plain = disks(N, 1)
    found = diagnose(fake=torch.where(area, fault(plain), plain), real=disks(N, 2), area=area).findings[0]
    kind = found.kinds[0]
    assert kind.name == name
    assert kind.share > 0.5
    span = float(disks(N, 2).max() - disks(N, 2).min())
    if strength is not None:
        scale = span if "range" in kind.unit else 1.0
        assert kind.strength * scale == pytest.approx(strength, rel=0.3)
    assert found.p == pytest.approx(0.001)
    assert len(found.samples) == 8


def test_a_color_is_named_with_its_channel() -> None:
    fake = disks(N, 1, 3)
    fake[:, 2] += 0.1
    kind = diagnose(fake=fake, real=disks(N, 2, 3), area=WHOLE).findings[0].kinds[0]
    assert (kind.name, kind.unit) == ("color", "of the range in blue")


def test_two_faults_are_both_named() -> None:
    fake = smoothed(disks(N, 1)) + 0.1
    kinds = diagnose(fake=fake, real=disks(N, 2), area=WHOLE).findings[0].kinds
    assert {"blurred", "brighter"} <= {kind.name for kind in kinds}
    assert sum(kind.share for kind in kinds) > 0.8


@pytest.mark.parametrize("copies", [0, 40])
def test_a_class_that_is_missing_is_modes(copies: int) -> None:
    fake, real = disks(4 * N, 1), disks(N, 2)
    real = torch.cat([real[:copies], real])  # what is named are places among the given images
    left = real[..., :8].mean((1, 2, 3)) > real[..., 8:].mean((1, 2, 3))
    fake = fake[fake[..., :8].mean((1, 2, 3)) < fake[..., 8:].mean((1, 2, 3))][:N]
    found = diagnose(fake=fake, real=real, area=WHOLE)
    assert found.findings[0].kinds[0].name == "modes"
    assert found.proportions > 0.8
    assert bool(left[list(found.too_rare)].all())
    assert not bool(left[list(found.too_frequent)].any())


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_no_more_than_all_brightness_and_contrast_is_gone(seed: int) -> None:
    images = torch.tensor(load_digits().images[:, None] / 16)
    real, fake = images[torch.randperm(1797, generator=torch.Generator().manual_seed(seed))[:600]].split(300)
    fake[:, :, 3:5] = 0
    finding = diagnose(fake=fake, real=real).findings[0]
    assert finding.area.name == "middle band, 8×2 px"
    assert [(kind.name in ("darker", "faded"), kind.strength) for kind in finding.kinds] == [(True, 1.0)]


@pytest.mark.parametrize("seed", range(4))
def test_a_shift_by_one_pixel_of_digits_is_found(seed: int) -> None:
    """Between shapes so small it has nothing in common with one by two, from which the search would come to it."""
    images = torch.tensor(load_digits().images[:, None] / 16)
    real, fake = images[torch.randperm(1797, generator=torch.Generator().manual_seed(seed))[:454]].split(227)
    fake[:, :, :3] = fake[:, :, :3].roll(1, -1)
    said = str(diagnose(fake=fake, real=real)).split("\n")[0]
    assert said.startswith("Upper half, 8×3 px: shifted by 1 px to the right; explains")


@pytest.mark.parametrize("kept", [(0, 2, 4, 6, 8), (1, 3, 5, 7, 9), (0, 1, 2, 3, 4)])
def test_missing_classes_are_wrong_proportions_of_the_whole_image(kept: tuple[int, ...]) -> None:
    """Where the classes differ most is where that shows most, but no place of it."""
    digits = load_digits()
    images, order = (
        torch.tensor(digits.images[:, None] / 16),
        torch.randperm(1797, generator=torch.Generator().manual_seed(0)),
    )
    fake, real = images[order[:900]], images[order[900:1400]]
    fake = fake[torch.isin(torch.tensor(digits.target)[order[:900]], torch.tensor(kept))]
    said = str(diagnose(fake=fake, real=real)).split("\n")[0]
    assert said.startswith("Whole image: right images in wrong proportions; explains ")


def test_an_area_of_another_image_is_a_misfit() -> None:
    x = disks(2 * N, 1)
    fake = torch.where(CORNER, x.roll(1, 0), x)
    assert diagnose(fake=fake, real=disks(2 * N, 2), area=CORNER).findings[0].kinds[0].name == "misfit"


def test_the_same_images_over_and_over_are_copies() -> None:
    fake = disks(20, 1).repeat(10, 1, 1, 1)
    found = diagnose(fake=fake, real=disks(N, 2), area=WHOLE)
    copies = next(x for x in found.findings if x.verdict == "copies")
    assert copies.kinds[0].strength > 0.8
    assert "mode collapse" in copies.cause
    assert "are the twins copies of training images?" in copies.remedy
    assert found.areas["whole image"].nearest == 0


def test_what_no_fault_explains_is_not_said_of_images_that_come_over_and_over() -> None:
    found = diagnose(fake=disks(20, 1).repeat(10, 1, 1, 1), real=disks(N, 2))
    assert found.findings[0].verdict == "copies"
    others = [x for x in found.findings[1:] if x.area.name == "whole image" and not x.fine]
    assert all(x.detail for x in others if not x.kinds)


def test_a_diagnosis_without_claims_has_the_p_value_that_it_says() -> None:
    images = torch.rand(480, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    train, real, fake = images[:120], images[120:360], images[360:].clone()
    fake[:40] = train[:40]
    found = diagnose(fake=fake, real=real, train=train)
    without = found.without_claims()
    assert without.p == found.p < 1e-4
    assert not any(x.fine is False for x in without.findings)
    assert without.findings[0].p == without.p


def test_images_that_are_copied_often_are_named_once() -> None:
    train = disks(N, 3)
    fake = torch.cat([disks(N - 60, 1), train[:20].repeat_interleave(3, 0)])
    (sentence,) = (str(x) for x in diagnose(fake=fake, real=disks(N, 2), train=train).findings if x.measure == "copied")
    named = sentence.split("Copied training images: ")[1].rstrip(".").split(", ")
    assert len(set(named)) == len(named) == 3


def test_nothing_wrong_has_no_name() -> None:
    found = [diagnose(fake=disks(N, 2 * seed + 1), real=disks(N, 2 * seed + 2), area=WHOLE) for seed in range(10)]
    assert not any(x.kinds for diagnosis in found for x in diagnosis.findings)
    assert sum(bool(diagnosis.findings[0].fine) for diagnosis in found) >= 8  # 9.5 on average at a level of 5 %
    assert found[0].areas["whole image"].spread == pytest.approx(1, abs=0.1)


def test_areas_that_turn_out_to_be_the_image_are_not_diagnosed_beside_it() -> None:
    found = diagnose(fake=smoothed(disks(N, 1)), real=disks(N, 2))
    assert list(found.areas) == ["whole image"]


@pytest.mark.slow
def test_no_picture_shows_another_fault_than_the_finding_says() -> None:
    """Repeated images have faults of their own that explain something; what is shown of them is not what was found."""
    found = diagnose(fake=disks(30, 1).repeat(N // 30, 1, 1, 1), real=disks(N, 2))
    assert found.findings[0].kinds[0].name == "copies"
    assert [name.split(",")[0] for name in found.examples] == ["real", "generated"]


def textures(n: int, seed: int, side: int = 5) -> Tensor:
    """Textures of 40×32 pixels that have no fixed place, in three levels of gray, smooth over some pixels."""
    generator = torch.Generator().manual_seed(seed)
    level = 0.3 + 0.2 * torch.randint(3, (n, 1, 1, 1), generator=generator)
    grain = torch.rand(n, 1, 39 + side, 31 + side, generator=generator) - 0.5
    return level + side / 3 * F.avg_pool2d(grain, side, 1)


@pytest.mark.parametrize("name", ["blurred", "noisy", "brighter", "periodic"])
def test_of_images_that_are_not_aligned_kinds_are_named_without_a_place(name: str) -> None:
    fault = {**FAULTS, "periodic": (lambda x: x + 0.08 * (-1.0) ** torch.arange(32), 0.08)}[name][0]
    side = 3 if name == "blurred" else 5
    found = diagnose(fake=fault(textures(2 * N, 1, side)), real=textures(2 * N, 2, side), aligned=False)
    assert found.findings[0].kinds[0].name == name
    assert str(found).startswith("Anywhere: ")
    assert "patches of 16×16 px from random places were compared." in str(found)
    assert found.map is None


@pytest.mark.parametrize(
    ("order", "n", "m", "seed"), [(3734844560, 150, 700, 26), (3236676040, 300, 150, 32), (1463359552, 700, 150, 39)]
)
def test_nothing_is_claimed_that_all_tests_together_do_not_support(order: int, n: int, m: int, seed: int) -> None:
    """Real digits in place of generated ones, of which one test of several says that they differ."""
    digits = torch.tensor(load_digits().images / 16, dtype=torch.float32)[:, None]
    digits = digits[torch.randperm(len(digits), generator=torch.Generator().manual_seed(order))]
    found = diagnose(fake=digits[:n], real=digits[n : n + m], seed=seed)
    assert min(x.p for x in found.areas.values()) <= LEVEL
    assert found.p > CLAIM
    assert not any(x.fine is False for x in found.findings)
    assert found.findings[0].fine
    assert found.findings[0].p == found.p
    assert found.too_rare == found.too_frequent == ()


def test_nothing_wrong_has_no_name_in_images_that_are_not_aligned() -> None:
    assert diagnose(fake=textures(2 * N, 1), real=textures(2 * N, 2), aligned=False).findings[0].fine


def test_two_areas_are_both_found_where_they_are() -> None:
    x, real = disks(2 * N, 1), disks(2 * N, 2)
    corners = torch.zeros(16, 16, dtype=torch.bool)
    corners[:3, :3] = corners[:3, -3:] = True
    fake = torch.where(corners, x + 0.3, x)
    found = diagnose(fake=fake, real=real)
    corner = torch.zeros_like(corners)
    corner[:3, :3] = True
    for true in (corner, corner.flip(1)):
        overlaps = [float((x.mask & true).sum() / (x.mask | true).sum()) for x in found.areas.values()]
        assert sorted(overlaps)[-1] > 0.5 > sorted(overlaps)[-2]


def test_wrong_proportions_are_said_only_where_images_are_right() -> None:
    base = torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(0))

    def of_two_classes(n: int, seed: int, share: float) -> Tensor:
        images = disks(n, seed)
        images[: round(share * n), :, 3:9, 2:7] += 0.5
        images[: round(share * n), :, 10:15, 8:15] += 0.5
        return images

    real = of_two_classes(400, 2, 0.6)
    found = diagnose(fake=of_two_classes(400, 1, 0.1), real=real)
    assert found.findings[0].kinds[0].name == "modes"
    assert found.proportions > 0.8
    patterned = diagnose(fake=of_two_classes(400, 1, 0.1) + 0.02 * base, real=real)
    assert not any(kind.name == "modes" for x in patterned.findings for kind in x.kinds)
    assert patterned.proportions == 0


def test_parts_of_the_distance_add_up_to_all_of_it() -> None:
    fakes = {"corner": torch.where(CORNER, disks(N, 1) + 0.15, disks(N, 1)), "faint": 0.7 * disks(N, 1)}
    for fake in fakes.values():
        found = diagnose(fake=fake, real=disks(N, 2))
        values = found.of_image()
        assert 0.5 < values["explained"] <= 1
        assert values["explained"] + values["proportions"] <= 1 + 1e-9
        assert all(sum(kind.share for kind in x.kinds) <= 1 + 1e-9 for x in found.findings)


def test_readings_are_said_where_no_kind_is_right() -> None:
    generator = torch.Generator().manual_seed(0)
    fake = disks(N, 1)
    fake[torch.arange(N), :, torch.randint(16, (N,), generator=generator)] = 1.0  # a bright line
    found = diagnose(fake=fake, real=disks(N, 2)).findings[0]
    assert not found.kinds
    assert "no simple fault" not in found.text
    assert re.search(r"[a-z ]+ [\d.]+( %)?, real [\d.]+( %)? \(in \d+ % of the images; p = ", found.text)


class Corner(Reading):
    """Brightness of the lower right corner."""

    name, family = "brightness of the corner", "tone"
    result = "right"

    def of(self, look: Look) -> Tensor:
        out = look.gray[:, 12:, 12:].mean((1, 2))
        return {"right": out, "shape": out[1:], "nan": out * torch.nan}[self.result]


def test_a_users_reading_is_said_and_its_images_are_shown() -> None:
    fake, real = disks(N, 1), disks(N, 2)
    bright = torch.arange(N) % 3 == 0
    fake[bright, :, 12:, 12:] += 0.5
    found = diagnose(fake=fake, real=real, area=WHOLE, fault_models=[], readings=[Corner()])
    finding = found.findings[0]
    assert "brightness of the corner" in finding.text
    assert all(bool(bright[i]) for i in finding.samples)
    shown = {name: Corner().of(Look(images)) for name, images in found.examples.items()}
    typical, most = shown["real, with typical brightness of the corner"], shown["generated, those that show it most"]
    assert (typical - Corner().of(Look(real)).median()).abs().max() < 0.02
    assert most.min() > Corner().of(Look(real)).max()


@pytest.mark.parametrize("result", ["shape", "nan"])
def test_a_reading_that_fails_is_named(result: str) -> None:
    reading = Corner()
    reading.result = result
    fake, real = disks(N, 1) + 0.2, disks(N, 2)
    with pytest.raises(ValueError, match=r"the reading 'brightness of the corner' to return a finite number .* \[8\]"):
        diagnose(fake=fake, real=real, area=WHOLE, readings=[reading])
    found = diagnose(fake=fake, real=real, area=WHOLE, readings=[reading], skip_failing=True)
    assert "brightness of the corner" in found.failures[0]
    assert found.findings[0].kinds[0].name == "brighter"


def test_the_sentence_says_where_what_how_much_and_how_sure() -> None:
    plain = disks(N, 1)
    found = diagnose(fake=torch.where(CORNER, plain + 0.1, plain), real=disks(N, 2), area=CORNER).findings[0]
    text = str(found)
    assert text.startswith("Lower right")
    assert "10×10 px" in text
    assert "of the range; explains " in text
    assert text.endswith("% of what is wrong there (p = 0.001).")
    assert found.cause.startswith("Usual cause: ")
    assert found.remedy == KINDS["brighter"].remedy


def test_without_a_kind_the_first_reading_says_what_to_try() -> None:
    rows = disks(N, 1) + 0.1 * (torch.arange(16.0) % 2)[:, None]
    (read,) = [x for x in READINGS if x.name == "every second row stands out by"]
    found = diagnose(fake=rows, real=disks(N, 2), area=WHOLE, fault_models=[], readings=[read]).findings[0]
    assert (found.kinds, found.remedy) == ((), KINDS["periodic"].remedy)
    assert found.cause.startswith("Possible cause: ")


@pytest.mark.parametrize("reading", READINGS, ids=lambda x: x.name)
def test_a_reading_resembles_kinds_whose_cause_has_a_source(reading: Reading) -> None:
    assert all(KINDS[name].source for name in reading.resembles if name)


@pytest.mark.parametrize("scale", ["uint8", "signed", "float64", "half"])
def test_any_range_and_dtype_has_the_same_answer(scale: str) -> None:
    real, fake = disks(N, 2).clamp(0, 1), (disks(N, 1) + 0.1).clamp(0, 1)
    change: dict[str, Callable[[Tensor], Tensor]] = {
        "uint8": lambda x: (255 * x).round().to(torch.uint8),
        "signed": lambda x: 2 * x - 1,
        "float64": lambda x: 65535 * x.double(),
        "half": lambda x: x.half(),
    }
    kind = diagnose(fake=change[scale](fake), real=change[scale](real), area=WHOLE).findings[0].kinds[0]
    expected = diagnose(fake=fake, real=real, area=WHOLE).findings[0].kinds[0]
    assert (kind.name, kind.unit) == (expected.name, expected.unit)
    assert kind.strength == pytest.approx(expected.strength, rel=0.1)


def test_features_have_kinds_without_pixels() -> None:
    real, fake = (torch.randn(N, 16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    found = diagnose(fake=fake * 0.6, real=real)
    assert found.findings[0].kinds[0].name == "less_varied"
    assert "blurred" in found.left_out[0]


def test_regions_are_diagnosed_one_by_one() -> None:
    plain, halves = disks(N, 1), PixelPartition.grid((16, 16), rows=1, columns=2)
    fake = plain.clone()
    fake[..., 8:] += 0.1
    first, second = diagnose(fake=fake, real=disks(N, 2), partition=halves).findings
    assert (first.area.region, first.kinds[0].name) == ("cluster_2", "brighter")
    assert second.area.region == "cluster_1"


def test_without_an_area_the_whole_image_is_diagnosed() -> None:
    found = diagnose(fake=disks(N, 1) + 0.1, real=disks(N, 2))
    assert any(x.area.name == "whole image" for x in found.findings)
    assert found.findings[0].kinds[0].name == "brighter"


@pytest.mark.parametrize("name", ["brighter", "noisy"])
def test_a_fault_in_an_area_that_nobody_tells_is_found_there_and_said_first(name: str) -> None:
    plain = disks(2 * N, 1)
    fake = torch.where(CORNER, FAULTS[name][0](plain), plain)
    first = diagnose(fake=fake, real=disks(2 * N, 2)).findings[0]
    assert first.kinds[0].name == name
    assert first.area.mask is not None
    assert float((first.area.mask & CORNER).sum() / (first.area.mask | CORNER).sum()) >= 0.5


@pytest.mark.parametrize("value", [None, 0.3])
@pytest.mark.parametrize("count", [N, 60])
def test_one_image_over_and_over_is_said_first(value: float | None, count: int) -> None:
    image = disks(1, 1) if value is None else torch.full_like(disks(1, 1), value)
    found = diagnose(fake=image.repeat(count, 1, 1, 1), real=disks(N, 2), area=WHOLE)
    verdicts = [x.verdict for x in found.findings]
    assert "copies" in verdicts
    # of one gray image, that it is blank explains more
    assert verdicts[0] == ("copies" if value is None else "blank in 100 % of the images")
    assert found.findings[0].kinds[0].strength > 0.8


def test_images_faded_to_a_thousandth_of_a_percent_are_no_copies() -> None:
    found = diagnose(fake=0.5 + 1e-5 * disks(N, 1), real=disks(N, 2), area=WHOLE)
    assert not any(x.verdict == "copies" for x in found.findings)


def test_of_one_real_image_over_and_over_nothing_else_is_a_copy() -> None:
    found = diagnose(fake=disks(N, 1), real=disks(1, 2).repeat(N, 1, 1, 1), area=WHOLE)
    assert not any(x.verdict == "copies" for x in found.findings)


def test_faded_images_are_no_copies() -> None:
    found = diagnose(fake=0.5 * disks(N, 1), real=disks(N, 2), area=WHOLE)
    assert found.findings[0].kinds[0].name == "faded"
    assert not any(x.verdict == "copies" for x in found.findings)


def test_it_survives_json_with_its_mask() -> None:
    plain = disks(N, 1)
    found = diagnose(fake=torch.where(CORNER, plain + 0.1, plain), real=disks(N, 2), area=CORNER)
    saved = json.loads(json.dumps(found.to_dict()))
    finding = Finding.from_dict(saved["findings"][0])
    assert finding == found.findings[0]
    assert finding.area.mask is not None
    assert torch.equal(finding.area.mask, CORNER)


def test_json_has_no_numbers_that_constant_real_images_leave_undefined() -> None:
    found = diagnose(fake=disks(20, 1), real=torch.full((20, 1, 16, 16), 0.5), area=CORNER)
    saved = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    (area,) = saved["areas"].values()
    assert area["spread"] is None
    assert area["p"] <= 0.05
    assert found._repr_html_().startswith("<pre>")


@dataclass(frozen=True)
class Vignette:
    """Darker toward the corners."""

    name: str = "vignette"
    unit: str = "of the range in the corners"
    strengths: tuple[float, ...] = (0.1, 0.2, 0.4)
    result: str = "right"

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        place = torch.linspace(-1, 1, 16) ** 2
        out = images - strength * (place[:, None] + place) / 2
        return {"right": out, "shape": out[:, :, 1:], "nan": out / 0 * 0}[self.result]


def test_a_users_fault_model_is_fitted_like_the_others() -> None:
    fake = Vignette().apply(disks(N, 1), 0.25, torch.Generator())
    models = (Vignette(), *genmonitor.functional.diagnosis.kinds.FAULT_MODELS)
    kind = diagnose(fake=fake, real=disks(N, 2), area=WHOLE, fault_models=models).findings[0].kinds[0]
    assert kind.name == "vignette"
    assert kind.unit == Vignette().unit


class OwnKind(Kind):
    """A user's kind that fails in one of its methods."""

    name, unit, strengths = "own", "of the range", (0.1, 0.2)

    def __init__(self, fails: str) -> None:
        self.fails = fails

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        return images[1:] if self.fails == "apply" else images

    def measured(self, fake: Tensor, real: Tensor, area: Tensor) -> Kind | None:
        if self.fails == "measured":
            raise RuntimeError("nothing to measure")
        return super().measured(fake, real, area)


@pytest.mark.parametrize(("fails", "says"), [("apply", "of shape"), ("measured", "nothing to measure")])
def test_a_users_kind_that_fails_costs_its_line(fails: str, says: str) -> None:
    models = (OwnKind(fails), *genmonitor.functional.diagnosis.kinds.FAULT_MODELS)
    found = diagnose(fake=disks(N, 1) + 0.2, real=disks(N, 2), area=WHOLE, fault_models=models, skip_failing=True)
    assert says in found.failures[0]
    assert found.findings[0].kinds[0].name == "brighter"


@pytest.mark.parametrize(("result", "says"), [("shape", "of shape"), ("nan", "finite")])
def test_a_fault_model_that_fails_is_named(result: str, says: str) -> None:
    fake, real = disks(N, 1) + 0.2, disks(N, 2)
    models = (Vignette(result=result), *genmonitor.functional.diagnosis.kinds.FAULT_MODELS)
    with pytest.raises(ValueError, match=f"`apply` of the fault model 'vignette'.*{says}"):
        diagnose(fake=fake, real=real, area=WHOLE, fault_models=models)
    found = diagnose(fake=fake, real=real, area=WHOLE, fault_models=models, skip_failing=True)
    assert "vignette" in found.failures[0]
    assert found.findings[0].kinds[0].name == "brighter"


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"fake": disks(7, 1)}, ValueError, "`fake` to hold at least 8"),
        ({"real": disks(7, 1)}, ValueError, "`real` to hold at least 8"),
        ({"fake": 255 * disks(20, 1)}, ValueError, "value range of `real`, but real images reach"),
        ({"area": CORNER[1:]}, ValueError, r"`area` of shape \[16, 16\]"),
        ({"area": CORNER & ~CORNER}, ValueError, "at least one pixel"),
        ({"area": CORNER.float()}, TypeError, "booleans"),
        ({"fault_models": ["blur"]}, TypeError, "`fault_models`"),
        ({"readings": ["blur"]}, TypeError, "`readings`"),
        ({"partition": PixelPartition.grid((16, 16), 2, 2)}, ValueError, "`area` or `partition`"),
        ({"seed": -1}, ValueError, "`seed`"),
        ({"aligned": False}, ValueError, "aligned=False, which has no places"),
        ({"aligned": "no"}, TypeError, "`aligned`"),
        (
            {"fake": torch.rand(20, 3), "real": torch.rand(20, 3), "area": None, "aligned": False},
            ValueError,
            "images for aligned=False, but got features",
        ),
    ],
    ids=[
        "fake",
        "real",
        "scale",
        "size",
        "empty",
        "dtype",
        "model",
        "reading",
        "both",
        "seed",
        "place",
        "aligned",
        "features",
    ],
)
def test_bad_input_is_refused(change: dict[str, object], error: type[Exception], says: str) -> None:
    arguments = {"fake": disks(20, 1), "real": disks(20, 2), "area": CORNER} | change
    with pytest.raises(error, match=says):
        diagnose(**arguments)  # type: ignore[arg-type]


def test_what_is_wrong_beside_a_region_is_not_said_of_it() -> None:
    x = disks(2 * N, 1)
    quarter = torch.zeros(16, 16, dtype=torch.bool)
    quarter[8:, 8:] = True
    found = diagnose(
        fake=torch.where(quarter, 0.5 * x, x), real=disks(2 * N, 2), partition=PixelPartition.grid((16, 16), 2, 2)
    )
    assert [area.p <= LEVEL for area in found.areas.values()] == [bool(x.mask[-1, -1]) for x in found.areas.values()]


def test_noise_that_nobody_sees_does_not_hide_what_is_seen():
    flat = [(disks(N, seed) - 0.25).clamp(0, 1) for seed in (11, 12)]  # exactly black around the disk
    fake = (0.7 * flat[0] + 0.003 * noise(flat[0])).clamp(0, 1)
    found = diagnose(fake=fake, real=flat[1]).findings[0]
    assert found.kinds[0].name == "faded"
    assert "noisy" not in [kind.name for kind in found.kinds]


@pytest.mark.parametrize("strength", [0.0, 0.6])
def test_no_place_is_said_where_all_around_it_differs_as_much(strength: float) -> None:
    """Another order of the images would bring another place."""
    generator = torch.Generator().manual_seed(0)
    fake, real = disks(N, 1), disks(N, 2)
    fake[:, :, 8:, :8] += 0.15 * torch.randn(N, 1, 8, 8, generator=generator)
    around = torch.ones(16, 16, dtype=torch.bool)
    around[8:, :8] = False
    fake[:, :, around] += strength * 0.15 * torch.randn(N, 1, int(around.sum()), generator=generator)
    found = diagnose(fake=fake, real=real).findings[0]
    assert found.area.name.startswith("whole image" if strength else "lower left")
    assert found.kinds[0].name == "noisy"


@pytest.mark.parametrize(
    ("share", "leaves", "near", "named", "identified"),
    [
        (0.5, 0, True, True, True),
        (0.94, 2, True, True, False),
        (0.96, 2, True, True, True),
        (0.99, 2, False, True, False),
        (0.49, 0, True, True, False),
        (1.0, 0, True, False, False),
    ],
)
def test_a_kind_is_what_is_wrong_if_next_to_nothing_is_left(
    share: float, leaves: int, near: bool, named: bool, identified: bool
) -> None:
    assert Explained((), (share,), leaves, near, named).identified is identified


@pytest.mark.parametrize(("share", "identified"), [(0.89, False), (0.91, True)])
def test_a_kind_in_a_place_explains_nearly_all(share: float, identified: bool) -> None:
    assert Explained((), (share,), named=True, needed=IN_PLACE).identified is identified


def test_what_the_map_finds_is_said_where_the_whole_image_hides_it() -> None:
    """Faint noise everywhere, in images of flat stripes that differ much."""
    generator = torch.Generator().manual_seed(5)
    colors = torch.rand(240, 3, 3, 1, generator=generator).repeat_interleave(4, 2).expand(-1, -1, -1, 12)
    images = torch.where(torch.rand(240, 1, 1, 1, generator=generator) < 0.5, colors, colors.mT)
    fake = images[:120] + 0.03 * torch.randn(120, 3, 12, 12, generator=generator)
    found = diagnose(fake=fake, real=images[120:])
    assert found.areas["whole image"].p > LEVEL
    assert found.findings[0].kinds[0].name == "noisy"


SAID = Said(READINGS[0], 0.5, 0.1, 1.0, 0.001, torch.arange(3), torch.arange(3))


@pytest.mark.parametrize(("share", "said"), [(0.49, False), (0.51, True)])
def test_a_nearest_kind_is_said_from_a_share_on_that_another_order_keeps(share: float, said: bool) -> None:
    kind = FaultKind("blurred", 0.6, "px", share)
    of_readings = words.readings_sentence("center", [SAID], 0.001, kind)
    assert ("Nearest kind: blurred, σ 0.6 px, which would explain 51 %." in of_readings) is said
    assert ("the best, blurred" in words.unexplained_sentence("center", kind, 0.001)) is said


@pytest.mark.parametrize(
    ("nearest", "share", "from_where"),
    [("noisy", 0.5, "noisy"), ("noisy", 0.49, "blurred"), ("thinner", 0.9, "thinner"), ("mine", 0.9, "blurred")],
    ids=["nearest", "too small", "no source", "no advice"],
)
def test_a_possible_cause_is_that_of_the_nearest_kind_or_of_the_first_reading(
    nearest: str, share: float, from_where: str
) -> None:
    (edges,) = [x for x in READINGS if x.name == "steepest edges"]
    said = replace(SAID, reading=edges, fake=0.1, real=0.5)
    cause, remedy = words.possible_advice(FaultKind(nearest, 0.6, "px", share), [said, SAID])
    assert (remedy, cause.startswith("Possible cause: ")) == (KINDS[from_where].remedy, from_where != "thinner")
    assert words.possible_advice(None, [SAID]) == ("", "")  # nothing has a source


@pytest.mark.parametrize(("p", "first"), [(0.01, "no difference"), (0.001, "of the real images are unlike any sample")])
def test_one_of_many_tests_is_the_news_only_if_it_is_sure(p: float, first: str, monkeypatch) -> None:
    found = Finding("9 % of the real images are unlike any sample.", Area("real images"), "", None, fine=False, p=p)
    monkeypatch.setattr(SingleSamples, "without_samples", lambda self: [found])
    assert first in str(diagnose(fake=disks(N, 1), real=disks(N, 2)).findings[0])


@pytest.mark.parametrize("missing", [True, False])
def test_missing_kinds_of_images_are_counted_once(missing: bool) -> None:
    """Beside 'hardly ever sampled: 48 %', 'unlike any sample: 35 %' would contradict it."""
    soft, again = (Finding("…", Area(name), "", None, fine=False, p=0.001) for name in ("whole image", "real images"))
    singles = SimpleNamespace(memorized=lambda _: [], strangest=lambda _: [], without_samples=lambda: [again])
    found = _with_others([soft], singles, torch.ones(2, 2).bool(), missing)  # type: ignore[arg-type]
    assert (again in headlines(found)) != missing


def test_a_second_fault_that_adds_next_to_nothing_is_not_said() -> None:
    faults = tuple(PutFault(KINDS[name](), 0.1) for name in ("noisy", "faded", "brighter"))
    assert [kind.share for kind in fault_kinds(Explained(faults, (0.01, 0.9, 0.06)))] == [0.9, 0.06]
    assert [kind.share for kind in fault_kinds(Explained(faults[:1], (0.01,)))] == [0.01]


@pytest.mark.parametrize(
    "scaled",
    [
        lambda fake, real: (fake, 2 * real - 1),
        lambda fake, real: (2 * fake - 1, real),
        lambda fake, real: (255 * fake, real),
        lambda fake, real: ((255 * fake).byte(), 2 * real - 1),
    ],
)
def test_another_value_range_is_no_fault_of_the_images(scaled: Callable[..., tuple[Tensor, Tensor]]) -> None:
    fake, real = scaled(disks(20, 1).clamp(0, 1), disks(20, 2).clamp(0, 1))
    with pytest.raises(ValueError, match="value range of `real`, but real images"):
        diagnose(fake=fake, real=real)
