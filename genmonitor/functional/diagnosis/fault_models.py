# SPDX-License-Identifier: Apache-2.0
"""Faults that image generators have, as changes of real images with a strength in units that a person knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

Change = Callable[[Tensor, float, torch.Generator], Tensor]


@runtime_checkable
class FaultModel(Protocol):
    """A fault as a change of real images: what `genmonitor.diagnose(fault_models=...)` takes.

    Attributes:
        name: such as "vignette".
        unit: of the strength, in words: "of the range", "px".
        strengths: to try first, none of them 0; between and a little beyond them the strength is then fitted.
    """

    @property
    def name(self) -> str:
        """What a finding calls it."""
        ...

    @property
    def unit(self) -> str:
        """Of the strength, in words."""
        ...

    @property
    def strengths(self) -> tuple[float, ...]:
        """Those to try first."""
        ...

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        """Return images with the fault.

        Args:
            images: real ones [N, C, H, W], scaled so that they fill [0, 1].
            strength: one of `strengths`, or one between.
            generator: for what is random, on the CPU.

        Returns:
            New images of the same shape; only the area that is diagnosed is looked at.
        """
        ...


PART, RANGE, FADED = (0.0, 1.0), (-1.0, 1.0), (-1.0, math.inf)
"""Bounds of strengths: a part of something, of the range of values, of a contrast of which no more than all can go."""


@dataclass(frozen=True)
class Fault:
    """A fault model of the package.

    Attributes:
        name: of a fault with a strength above 0.
        unit: as for `FaultModel`.
        strengths: the same.
        change: what `apply` does.
        opposite: name of a fault with a strength below 0; None where strengths are positive.
        opposite_unit: its unit, where that is another.
        whole: whether strengths are whole numbers.
        of_pixels: whether it means something only where neighboring values are neighboring pixels.
        bounds: of the strength: no more than all contrast can be gone.
    """

    name: str
    unit: str
    strengths: tuple[float, ...]
    change: Change = field(repr=False)
    opposite: str | None = None
    opposite_unit: str | None = None
    whole: bool = False
    of_pixels: bool = True
    bounds: tuple[float, float] = (-math.inf, math.inf)

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        """See `FaultModel.apply`."""
        return self.change(images, strength, generator)


@dataclass(frozen=True)
class Measured:
    """A fault model that takes something from the images, such as a color's direction: `of` makes it, or None."""

    name: str
    of: Callable[[Tensor, Tensor, Tensor], Fault | None] = field(repr=False)
    of_pixels: bool = True


def both_ways(*strengths: float) -> tuple[float, ...]:
    """Return the strengths and their negatives."""
    return tuple(sign * strength for strength in strengths for sign in (1, -1))


def normal(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw standard normal noise of the images' shape; the CPU's generator gives all devices the same."""
    return torch.randn(images.shape, generator=generator).to(images)


def averaged(images: Tensor) -> Tensor:
    """Return the mean of 3×3 pixels; beyond the border the last pixel goes on.

    To add shifted images is several times as fast as to pool.
    """
    x = F.pad(images, (1, 1, 1, 1), "replicate")
    x = x[..., 1:-1] + x[..., :-2] + x[..., 2:]
    return (x[..., 1:-1, :] + x[..., :-2, :] + x[..., 2:, :]) / 9


def largest_beside(images: Tensor) -> Tensor:
    """Return the largest of 3×3 pixels."""
    x = F.pad(images, (1, 1, 1, 1), "replicate")
    x = torch.maximum(torch.maximum(x[..., 1:-1], x[..., :-2]), x[..., 2:])
    return torch.maximum(torch.maximum(x[..., 1:-1, :], x[..., :-2, :]), x[..., 2:, :])


def blur(images: Tensor, sigma: float) -> Tensor:
    """Blur images by a Gaussian of so many pixels; beyond the border the last pixel goes on."""
    rows, columns = (_blurring(size, sigma).to(images) for size in images.shape[2:])
    return rows @ images @ columns.T


def _blurring(size: int, sigma: float) -> Tensor:
    """Return the matrix that blurs a row of pixels [size, size]."""
    reach = max(1, round(4 * sigma))
    steps = torch.arange(-reach, reach + 1)
    taps = torch.softmax(-(steps.double() ** 2) / (2 * sigma**2), 0)
    to = torch.arange(size)[:, None].expand(-1, len(steps))
    return torch.zeros(size, size, dtype=torch.float64).index_put(
        (to, (to + steps).clamp(0, size - 1)), taps.expand(size, -1), accumulate=True
    )


def _brighter(x: Tensor, s: float, _: torch.Generator) -> Tensor:
    return x + s


def _contrast(x: Tensor, s: float, _: torch.Generator) -> Tensor:
    mean = x.mean((1, 2, 3), keepdim=True)
    return mean + (1 + s) * (x - mean)


def _amplitude(pivot: float) -> Change:
    return lambda x, s, _: pivot + (1 + s) * (x - pivot)


def _blurred(x: Tensor, s: float, _: torch.Generator) -> Tensor:
    return blur(x, s)


def _sharpened(x: Tensor, s: float, _: torch.Generator) -> Tensor:
    return x + s * (x - blur(x, 1.0))


def _noisy(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    return x + s * normal(x, generator)


def _shifted(dim: int) -> Change:
    def change(x: Tensor, s: float, _: torch.Generator) -> Tensor:
        size, step = x.shape[dim], round(s)
        return x.index_select(dim, (torch.arange(size, device=x.device) - step).clamp(0, size - 1))

    return change


def _clipped(x: Tensor, s: float, _: torch.Generator) -> Tensor:
    return x.clamp_max(1 - s) if s > 0 else x.clamp_min(-s)


def _clipped_at_both(x: Tensor, s: float, _: torch.Generator) -> Tensor:
    return x.clamp(s, 1 - s)


def _posterized(x: Tensor, s: float, _: torch.Generator) -> Tensor:
    steps = max(1, round(s) - 1)
    return (x * steps).round() / steps


def _in_levels(fake: Tensor, real: Tensor, area: Tensor) -> Fault | None:
    """Leave it out unless generated images have few levels: to a kernel, rounding is noise."""
    of_fake, of_real = (_in_few_levels(x[:COUNTED, :, area]) for x in (fake, real))
    if of_fake < FEW_LEVELS or of_fake <= of_real:
        return None
    return Fault("posterized", "levels", (2, 3, 4, 5, 6, 8, 10, 13, 16), _posterized, whole=True)


FEW_LEVELS = 0.7
"""Part of the values that the 16 most common ones hold, from which images may be posterized."""
COUNTED = 64
"""Images whose values are counted."""


def _in_few_levels(values: Tensor) -> float:
    """Return the part of the values that the 16 most common ones hold, to a thousandth of the range."""
    counts = (1000 * values).round().unique(return_counts=True)[1]
    return float(counts.topk(min(16, len(counts))).values.sum() / counts.sum())


def _thicker(x: Tensor, s: float, _: torch.Generator) -> Tensor:
    """Grow what is bright by pixels; shrink it for s < 0."""
    sign, low = (1 if s > 0 else -1), int(abs(s))
    out = sign * x
    for _step in range(low):
        out = largest_beside(out)
    return sign * torch.lerp(out, largest_beside(out), abs(s) - low)


def _less_varied(x: Tensor, s: float, _: torch.Generator) -> Tensor:
    mean = x.mean(0)
    return mean + (1 - s) * (x - mean)


def _brightness(fake: Tensor, real: Tensor, area: Tensor) -> Fault | None:
    """Take the strength from how far means are apart at most pixels, for the area may be too large.

    Where real images hardly vary, no other strength comes near.
    """
    shift = float((fake[:, :, area].mean((0, 1)) - real[:, :, area].mean((0, 1))).median())
    if not shift:
        return None
    return Fault(
        "brighter", "of the range", (shift / 2, shift, 2 * shift), _brighter, "darker", of_pixels=False, bounds=RANGE
    )


def _color(fake: Tensor, real: Tensor, area: Tensor) -> Fault | None:
    """Take direction and strength from how far the channels' means in the area are apart."""
    if real.shape[1] == 1:
        return None
    shift, apart = max((_shift_of_channels(*means) for means in _channel_means(fake, real, area)), key=lambda x: x[1])
    if apart <= APART:  # then it is brightness
        return None
    direction = shift / shift.abs().max().clamp_min(torch.finfo(shift.dtype).tiny)
    direction = direction.where(direction.abs() >= 0.25, 0)
    if float(direction.max() - direction.min()) < 0.25:
        return None
    leading = int(direction.abs().argmax())
    direction = direction / direction[leading]
    others = [
        f"{_channel(i, len(shift))} × {float(part):.1g}"
        for i, part in enumerate(direction)
        if i != leading and float(part)
    ]
    words = ", ".join([_channel(leading, len(shift)), *others[:3]])

    def change(x: Tensor, s: float, _: torch.Generator) -> Tensor:
        return x + s * direction.view(-1, 1, 1)

    strength = float(shift[leading])
    return Fault("color", f"of the range in {words}", (strength / 2, strength, 2 * strength), change, "color")


APART = 3
"""Standard errors that channels must have moved apart by for a color."""
AROUND = 3
"""Pixels around an area that it is compared with."""


def _channel_means(fake: Tensor, real: Tensor, area: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the channels' means of both sides [N, C]: in the area, and less those around it, which vary with them."""
    inside = tuple(x[:, :, area].mean(2) for x in (fake, real))
    yield inside[0], inside[1]
    around = ~area & (F.max_pool2d(area[None].float(), 2 * AROUND + 1, 1, AROUND)[0] > 0)
    if bool(around.any()):
        outside = [x[:, :, around].mean(2) for x in (fake, real)]
        yield inside[0] - outside[0], inside[1] - outside[1]


def _shift_of_channels(fake: Tensor, real: Tensor) -> tuple[Tensor, float]:
    """Return what channels' means have moved by [C], and by how many standard errors they have moved apart."""
    apart = [x - x.mean(1, keepdim=True) for x in (fake, real)]
    error = torch.stack([x.var(0) / len(x) for x in apart]).sum(0)
    moved = (apart[0].mean(0) - apart[1].mean(0)).square() / error.clamp_min(torch.finfo(error.dtype).tiny)
    return fake.mean(0) - real.mean(0), float(moved.max().sqrt())


def _channel(index: int, count: int) -> str:
    return ("red", "green", "blue")[index] if count == 3 else f"channel {index + 1}"


def _periodic(period: int) -> Callable[[Tensor, Tensor, Tensor], Fault | None]:
    """Take the pattern from the mean difference, folded at the period."""

    def of(fake: Tensor, real: Tensor, area: Tensor) -> Fault | None:
        rows, columns = (int(x.max() - x.min()) + 1 for x in area.nonzero(as_tuple=True))
        if min(rows, columns) < 2 * period:
            return None
        difference, everywhere = fake.mean(0) - real.mean(0), bool(area.all())
        pattern, remains = _folded(difference if everywhere else _without_trend(difference, area, period), area, period)
        if remains < (REPEATED * period**2 / float(area.sum()) if everywhere else OF_AREA):
            return None
        if period > 2 and _folded(difference, area, period // 2)[1] > SHORTER * remains:
            return None
        pattern = pattern / pattern.abs().max()

        def change(x: Tensor, s: float, _: torch.Generator) -> Tensor:
            return x + s * pattern

        unit = f"of the range, period {period} px"
        return Fault("periodic", unit, (0.01, 0.02, 0.05, 0.1, 0.2), change)

    return of


def _without_trend(difference: Tensor, area: Tensor, period: int) -> Tensor:
    """Subtract the mean over a period around each pixel, of those in the area; a pattern of that period has none."""
    taps = difference.new_ones(period + 1)
    taps[[0, -1]] = 0.5
    window = (taps[:, None] * taps)[None, None]
    inside = area.to(difference)[None]
    total, count = (F.conv2d(x[:, None], window, padding=period // 2)[:, 0] for x in (difference * inside, inside))
    return difference - total / count.clamp_min(1e-6)


def _folded(difference: Tensor, area: Tensor, period: int) -> tuple[Tensor, float]:
    """Return what repeats of a difference [C, H, W] within an area, over the whole image, and its part of the variance.

    Its mean in the area is 0.
    """
    y, x = (torch.arange(size, device=area.device) % period for size in area.shape)
    cells = y[:, None] * period + x
    cell = cells[area]
    folded = difference.new_zeros(len(difference), period**2)
    count = torch.bincount(cell, minlength=period**2)
    folded.index_add_(1, cell, difference[:, area])
    folded = folded / count.clamp_min(1)
    there = count > 0  # an area such as a border need not have every cell
    folded = (folded - folded[:, there].mean(1, keepdim=True)).where(there, 0)
    varies = difference[:, area].var(1, correction=0).sum()
    return folded[:, cells], float(folded[:, cell].square().mean(1).sum() / varies) if float(varies) else 0.0


REPEATED, OF_AREA = 1.5, 0.5
"""What must remain of the difference where it is folded: so many times what chance leaves, in whole images; most of it
in an area, where a step leaves much."""
SHORTER = 0.8
"""Part of what remains that half the period leaves from which the pattern is of that."""


def _blank(fake: Tensor, real: Tensor, area: Tensor) -> Fault | None:
    """Take the color that more generated than real images have all over the area."""
    if int(area.sum()) < 2:
        return None
    fake_colors, real_colors = (_plain_colors(x[:, :, area]) for x in (fake, real))
    if not len(fake_colors):
        return None
    near = [(torch.cdist(fake_colors, x) < SAME_COLOR).sum(1) for x in (fake_colors, real_colors)]
    share, usual = near[0] / len(fake), near[1] / len(real)
    most = (share - usual).argmax()
    if float(share[most]) > MOVED and 2 * len(real_colors) > len(real):
        return None
    color = fake_colors[most].view(-1, 1, 1)

    def change(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
        chosen = torch.randperm(len(x), generator=generator)[: round(s * len(x))]
        out = x.clone()
        out[chosen.to(x.device)] = color
        return out

    return Fault("blank", "of the images", (0.05, 0.1, 0.2, 0.4, 0.7, 1.0), change, bounds=PART)


SAME_COLOR, MOVED = 0.05, 0.9
"""Of the range, within which values count as one color; and part of the generated images that have it from which it is
what the color of an area that is plain in most real images has become, rather than what is missing there."""


def _plain_colors(inside: Tensor) -> Tensor:
    """Return the colors [K, C] of those images that hardly vary within an area, of its values [N, C, S]."""
    return inside[inside.std(2).amax(1) < SAME_COLOR].mean(2)


FAULT_MODELS: tuple[Fault | Measured, ...] = (
    Fault("shifted", "px to the right", both_ways(1, 2, 3, 4), _shifted(3), "shifted", "px to the left", whole=True),
    Fault("shifted", "px down", both_ways(1, 2, 3, 4), _shifted(2), "shifted", "px up", whole=True),
    Fault("thicker", "px", both_ways(0.5, 1, 2), _thicker, "thinner"),
    Fault("less_varied", "of the spread", (0.1, 0.2, 0.35, 0.5, 0.75), _less_varied, of_pixels=False, bounds=PART),
    Fault("blurred", "px (σ)", (0.4, 0.6, 0.9, 1.4, 2.5), _blurred),
    Fault("sharpened", "of the detail", (0.15, 0.3, 0.6, 1.2), _sharpened),
    Fault("stronger", "of the contrast", both_ways(0.07, 0.15, 0.3, 0.6), _contrast, "faded", bounds=FADED),
    Fault("stronger", "of the values", both_ways(0.07, 0.15, 0.3, 0.6), _amplitude(0.0), "faded", bounds=FADED),
    Fault("stronger", "of the values", both_ways(0.07, 0.15, 0.3, 0.6), _amplitude(0.5), "faded", bounds=FADED),
    Measured("brighter", _brightness, of_pixels=False),
    Measured("color", _color, of_pixels=False),
    Measured("periodic", _periodic(2)),
    Measured("periodic", _periodic(4)),
    Measured("periodic", _periodic(8)),
    Measured("blank", _blank),
    Fault("noisy", "of the range", (0.01, 0.02, 0.05, 0.1, 0.2, 0.4), _noisy, of_pixels=False),
    Fault(
        "clipped",
        "of the range at the top",
        both_ways(0.05, 0.1, 0.2, 0.4),
        _clipped,
        "clipped",
        "of the range at the bottom",
    ),
    Fault("clipped", "of the range at both ends", (0.05, 0.1, 0.2, 0.4), _clipped_at_both),
    Measured("posterized", _in_levels),
)
"""In the order in which faults are put into one image."""


def _from_another(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    chosen = torch.randperm(len(images), generator=generator)[: round(strength * len(images))]
    out = images.clone()
    out[chosen.to(images.device)] = images[chosen.roll(1).to(images.device)]
    return out


MISFIT = Fault("misfit", "of the images", (0.3, 0.6, 1.0), _from_another, bounds=PART)
"""An area that was drawn from another image is right alone; it shows at its edge, so a whole image has it not."""


def of_parts(area: Tensor) -> tuple[Fault, ...]:
    """Return the fault models that only a part of the image can have."""
    return () if bool(area.all()) else (MISFIT,)
