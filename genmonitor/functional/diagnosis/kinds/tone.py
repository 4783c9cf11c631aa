# SPDX-License-Identifier: Apache-2.0
"""Faults of brightness, color and contrast."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor._formatting import significant
from genmonitor.functional.diagnosis.kinds.base import PART, PER_PIXEL, RANGE, Kind, both_ways

_LIN = "Lin et al., 'Common Diffusion Noise Schedules and Sample Steps are Flawed', WACV 2024, arXiv 2305.08891"
_SCHEDULE = "a noise schedule that leaves signal at its last step, so samples keep to medium brightness"
_NORMALIZATION = (
    "are training and generated images normalized alike? If noise is added by a schedule, does that end without signal?"
)
_ACTIVATION = "compare the range of the output's activation with that of the training images"

AROUND = 3
"""Pixels around an area that it is compared with."""


class Brighter(Kind):
    """Values are higher everywhere."""

    name, unit = "brighter", "of the range"
    words, change = "brightness + {s} of the range", "s is added to each value"
    cause, source, remedy = _SCHEDULE, _LIN, _NORMALIZATION
    of_pixels, bounds, simplicity, moves_mean = False, RANGE, 0, True

    def __init__(self, strengths: tuple[float, ...] = ()) -> None:
        self.strengths = strengths

    def measured(self, fake: Tensor, real: Tensor, area: Tensor) -> Kind | None:
        """Measure the strength from the difference of means at most pixels, since the area may be too large.

        If real images hardly vary, no other strength comes close.
        """
        shift = float((fake[:, :, area].mean((0, 1)) - real[:, :, area].mean((0, 1))).median())
        return Brighter((shift / 2, shift, 2 * shift)) if shift else None

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        return images + strength


class Darker(Brighter):
    """Values are lower everywhere."""

    name, words, change = "darker", "brightness − {s} of the range", "s is taken from each value"


Brighter.opposite = Darker


class Color(Kind):
    """Channels have moved apart."""

    name = "color"
    words = "{changes} of the range"
    change = "s is added along the direction in which the channels' means differ"
    cause, source = _SCHEDULE, _LIN
    remedy = f"compare each channel's mean before and after normalization; {_NORMALIZATION}"
    of_pixels, simplicity, moves_mean = False, 1, True

    def __init__(self, direction: Tensor | None = None, unit: str = "", strength: float = 0.0) -> None:
        self.direction, self.unit = direction, unit
        self.strengths = (strength / 2, strength, 2 * strength) if strength else ()

    def measured(self, fake: Tensor, real: Tensor, area: Tensor) -> Kind | None:
        """Measure direction and strength from the differences of the channel means in the area."""
        if real.shape[1] == 1:
            return None
        shifts = (_shift_of_channels(*means) for means in _channel_means(fake, real, area))
        shift, apart = max(shifts, key=lambda x: x[1])
        # channels that have moved apart by 3 standard errors or less have changed in brightness alone
        if apart <= 3:
            return None
        direction = shift / shift.abs().max().clamp_min(torch.finfo(shift.dtype).tiny)
        direction = direction.where(direction.abs() >= 0.25, 0)
        if float(direction.max() - direction.min()) < 0.25:
            return None
        leading = int(direction.abs().argmax())
        direction = direction / direction[leading]
        names = [_channel(i, len(shift)) for i in range(len(shift))]
        others = [f"{names[i]} × {part:.1g}" for i, part in enumerate(direction.tolist()) if part and i != leading]
        unit = f"of the range in {', '.join([names[leading], *others[:3]])}"
        return Color(direction.view(-1, 1, 1), unit, float(shift[leading]))

    @classmethod
    def said(cls, strength: float, unit: str) -> str:
        changes = []
        for part in unit.rpartition(" in ")[2].split(", "):
            channel, _, factor = part.partition(" × ")
            change = strength * float(factor or 1)
            changes.append(f"{channel} {'−' if change < 0 else '+'} {significant(abs(change))}")
        return cls.words.format(changes=", ".join(changes))

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        assert self.direction is not None
        return images + strength * self.direction


def _channel_means(fake: Tensor, real: Tensor, area: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the channel means [N, C] of both sides: in the area, and minus the surroundings, which vary with it."""
    inside = [x[:, :, area].mean(2) for x in (fake, real)]
    yield inside[0], inside[1]
    around = ~area & (F.max_pool2d(area[None].float(), 2 * AROUND + 1, 1, AROUND)[0] > 0)
    if bool(around.any()):
        outside = [x[:, :, around].mean(2) for x in (fake, real)]
        yield inside[0] - outside[0], inside[1] - outside[1]


def _shift_of_channels(fake: Tensor, real: Tensor) -> tuple[Tensor, float]:
    """Return the shift of the channel means [C], and the number of standard errors by which they have moved apart."""
    apart = [x - x.mean(1, keepdim=True) for x in (fake, real)]
    error = torch.stack([x.var(0) / len(x) for x in apart]).sum(0)
    moved = (apart[0].mean(0) - apart[1].mean(0)).square() / error.clamp_min(torch.finfo(error.dtype).tiny)
    return fake.mean(0) - real.mean(0), float(moved.max().sqrt())


def _channel(index: int, count: int) -> str:
    return ("red", "green", "blue")[index] if count == 3 else f"channel {index + 1}"


class Stronger(Kind):
    """Values are farther from a middle: zero, half the range, or the mean of each image."""

    name, strengths = "stronger", both_ways(0.07, 0.15, 0.3, 0.6)
    words = "contrast + {percent} %"
    change = "values move away from the image's mean, zero or the middle of the range by the part s"
    cause = "guidance that is too strong and saturates images"
    source = "Saharia et al., 'Photorealistic Text-to-Image Diffusion Models with Deep Language Understanding' (Imagen), NeurIPS 2022, arXiv 2205.11487"
    remedy = "are samples guided? Then less of it, or dynamic thresholding"
    bounds, simplicity = (-1.0, math.inf), 2

    def __init__(self, middle: float | None = None) -> None:
        self.middle = middle
        self.unit = "of the contrast" if middle is None else "of the values"

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        middle = images.mean((1, 2, 3), keepdim=True) if self.middle is None else self.middle
        return middle + (1 + strength) * (images - middle)


class Faded(Stronger):
    """Values are closer to the middle."""

    name, words = "faded", "contrast − {percent} %"
    change = "values move toward the image's mean, zero or the middle of the range by the part s"
    cause = source = ""
    remedy = f"{_ACTIVATION}; {PER_PIXEL}"


Stronger.opposite = Faded


class Gamma(Kind):
    """Middle tones are darker or brighter; black and white are unchanged."""

    name, unit, strengths = "gamma", "as exponent", (0.4, 0.6, 0.8, 1.25, 1.6, 2.5)
    words, change = "gamma {s}", "values are raised to the power s"
    remedy = "compare the color space of training and generated images: linear or sRGB"
    bounds, simplicity, moves_mean = (0.1, 10.0), 8, True

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        return images.clamp(0, 1) ** strength


class _OfColors(Kind):
    """A kind for images of three channels."""

    def measured(self, fake: Tensor, real: Tensor, area: Tensor) -> Kind | None:
        return self if real.shape[1] == 3 else None


class Desaturated(_OfColors):
    """Colors are closer to gray."""

    name, unit, strengths = "desaturated", "of the saturation", both_ways(0.2, 0.4, 0.7)
    words, change = "saturation − {percent} %", "colors move toward the pixel's gray by the part s"
    remedy = "compare each channel before and after normalization"
    bounds = (-math.inf, 1.0)

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        gray = images.mean(1, keepdim=True)
        return gray + (1 - strength) * (images - gray)


class Oversaturated(Desaturated):
    """Colors are farther from gray."""

    name, words = "oversaturated", "saturation + {percent} %"
    change = "colors move away from the pixel's gray by the part s"
    cause, source, remedy = Stronger.cause, Stronger.source, Stronger.remedy


Desaturated.opposite = Oversaturated


class Hue(_OfColors):
    """All colors are rotated around gray."""

    name, strengths = "hue", both_ways(30, 60, 120)
    unit, opposite_unit = "from red toward green", "from red toward blue"
    words, change = "hue turned by {s}° {unit}", "colors turn by s degrees around the gray axis"
    remedy = "look for color jitter in the training transforms, and for a wrong color space"
    bounds = (-180.0, 180.0)

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        cos, sin = math.cos(math.radians(strength)), math.sin(math.radians(strength)) / math.sqrt(3)
        gray = (1 - cos) / 3
        turn = torch.tensor([[cos, -sin, sin], [sin, cos, -sin], [-sin, sin, cos]]) + gray
        return torch.einsum("ij,njhw->nihw", turn.to(images), images)


class ChannelsSwapped(Kind):
    """Channels are in another order."""

    name, strengths = "channels_swapped", (1.0,)
    words, change = "channels in the order {unit}", "channels are put into the order that is nearest"
    remedy = "look for BGR in place of RGB, as OpenCV reads images"
    bounds = PART

    def __init__(self, order: tuple[int, ...] = (2, 1, 0)) -> None:
        self.order = order
        self.unit = ", ".join(_channel(i, len(order)) for i in order)

    def measured(self, fake: Tensor, real: Tensor, area: Tensor) -> Kind | None:
        """Find the order in which means and covariances of channels are closest; None if it is the real one."""
        if real.shape[1] != 3:
            return None
        (mean, cov), (of_real, cov_real) = (_channel_moments(x[:, :, area]) for x in (fake, real))

        def apart(order: tuple[int, ...]) -> float:
            at = list(order)
            return float((mean - of_real[at]).square().sum() + (cov - cov_real[at][:, at]).square().sum().sqrt())

        best = min(permutations(range(3)), key=apart)
        return None if best == (0, 1, 2) else ChannelsSwapped(best)

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        return images[:, list(self.order)]


def _channel_moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean [C] and covariance [C, C] of the pixels [N, C, S]."""
    pixels = values.transpose(0, 1).flatten(1)
    return pixels.mean(1), pixels.cov()


class Clipped(Kind):
    """Values beyond a limit are cut off."""

    name = "clipped"
    words, change = "clipped by {s} {unit}", "values beyond s of the range are cut off, at the top or at the bottom"
    remedy = f"{_ACTIVATION}; is anything cut at ± 1, as by `clip_sample` of the schedulers of diffusers?"

    def __init__(self, both_ends: bool = False) -> None:
        self.both_ends = both_ends
        self.unit = "of the range at both ends" if both_ends else "of the range at the top"
        self.opposite_unit = "of the range at the bottom"
        self.strengths = (0.05, 0.1, 0.2, 0.4) if both_ends else both_ways(0.05, 0.1, 0.2, 0.4)

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        if self.both_ends:
            return images.clamp(strength, 1 - strength)
        return images.clamp_max(1 - strength) if strength > 0 else images.clamp_min(-strength)


class Posterized(Kind):
    """Values are rounded to a few levels."""

    name, unit, strengths = "posterized", "levels", (2, 3, 4, 5, 6, 8, 10, 13, 16)
    words, change = "posterized to {s} levels", "values are rounded to s levels"
    remedy = "are images converted to integers more than once? Then once, at the end"
    whole, simplicity = True, 3

    def measured(self, fake: Tensor, real: Tensor, area: Tensor) -> Kind | None:
        """Skip the kind unless generated images have few levels, since a kernel takes rounding for noise."""
        # 64 images show whether there are few values
        of_fake, of_real = (_in_few_levels(x[:64, :, area]) for x in (fake, real))
        # the 16 most common values make up most of a posterized image
        return self if of_fake >= 0.7 and of_fake > of_real else None

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        steps = max(1, round(strength) - 1)
        return (images * steps).round() / steps


def _in_few_levels(values: Tensor) -> float:
    """Return the part of the values that the 16 most common ones cover, rounded to a thousandth of the range."""
    counts = (1000 * values).round().unique(return_counts=True)[1]
    return float(counts.topk(min(16, len(counts))).values.sum() / counts.sum())
