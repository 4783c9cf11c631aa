# SPDX-License-Identifier: Apache-2.0
"""Readings of brightness, contrast and color."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.kinds.shape import averaged
from genmonitor.functional.diagnosis.readings.base import Look, Reading


class _Tone(Reading):
    family, visible = "tone", 0.04


class DarkestPixels(_Tone):
    """Quantile of 1 % of the brightness."""

    name = "darkest pixels"
    resembles = ("", "stronger")

    def of(self, look: Look) -> Tensor:
        return look.quantile(0.01)


class BrightestPixels(_Tone):
    """Quantile of 99 % of the brightness."""

    name = "brightest pixels"
    resembles = ("stronger", "")

    def of(self, look: Look) -> Tensor:
        return look.quantile(0.99)


class Brightness(_Tone):
    """Mean of all pixels."""

    name = "brightness"
    resembles = ("brighter", "darker")

    def of(self, look: Look) -> Tensor:
        return look.gray.mean((1, 2))


class Contrast(_Tone):
    """Standard deviation of the pixels."""

    name, visible = "contrast", 0.03
    words = ("too much contrast", "washed out")
    resembles = ("stronger", "")

    def of(self, look: Look) -> Tensor:
        return look.gray.flatten(1).std(1)


class BorderBrightness(_Tone):
    """Mean of the outermost pixels."""

    name, visible = "brightness of the border", 0.03

    def of(self, look: Look) -> Tensor:
        x = look.gray
        return torch.cat([x[:, 0], x[:, -1], x[:, :, 0], x[:, :, -1]], 1).mean(1)


class Corners(_Tone):
    """Mean of the four corners minus that of the middle."""

    name, weight = "corners brighter than middle by", 0.5
    signs = ("brighter", "darker")

    def of(self, look: Look) -> Tensor:
        x = look.gray
        h, w = (max(1, size // 4) for size in x.shape[1:])
        corners = [part[..., s] for part in (x[:, :h], x[:, -h:]) for s in (slice(w), slice(-w, None))]
        return torch.stack([part.mean((1, 2)) for part in corners]).mean(0) - x[:, h:-h, w:-w].mean((1, 2))


class DistanceFromMean(Reading):
    """Root mean square difference of an image from the mean image of its set."""

    name, family, visible, weight = "distance from the mean image", "variety", 0.03, 0.5
    resembles = ("", "less_varied")
    needs_place = of_set = True

    def of(self, look: Look) -> Tensor:
        return (look.images - look.images.mean(0)).square().mean((1, 2, 3)).sqrt()


class _Color(Reading):
    family, needs_color, visible = "color", True, 0.04


class Saturation(_Color):
    """Mean difference between the brightest and the darkest channel."""

    name, words = "saturation", ("garish", "pale")

    def of(self, look: Look) -> Tensor:
        return (look.images.amax(1) - look.images.amin(1)).mean((1, 2))


class BackgroundTint(_Color):
    """Difference between the brightest and the darkest channel of the usual color of the border."""

    name, needs_background = "saturation of the background", True
    words = ("tinted background", "pale background")

    def of(self, look: Look) -> Tensor:
        return look.background.amax(1) - look.background.amin(1)


class Red(_Color):
    """Mean of the first channel minus that of all channels."""

    name, channel = "red above the other colors by", 0
    signs = ("above", "below")
    resembles = ("color", "color")

    def of(self, look: Look) -> Tensor:
        return (look.images[:, self.channel] - look.gray).mean((1, 2))


class Green(Red):
    """Mean of the second channel minus that of all channels."""

    name, channel = "green above the other colors by", 1


class Blue(Red):
    """Mean of the third channel minus that of all channels."""

    name, channel = "blue above the other colors by", 2


class ColorNoise(_Color):
    """Mean difference of the color, apart from the brightness, from the mean of 3×3 pixels."""

    name, visible = "color contrast of single pixels", 0.008
    words = ("colored noise", "less color detail")
    resembles = ("noisy", "blurred")

    def of(self, look: Look) -> Tensor:
        color = look.images - look.gray[:, None]
        return (color - averaged(color)).abs().mean((1, 2, 3))


class NumberOfColors(Reading):
    """Number of colors if each channel is rounded to 16 steps."""

    name, family, visible, only = "number of colors", "color", 10.0, "less"
    words = ("", "too few shades")

    def of(self, look: Look) -> Tensor:
        steps = (16 * look.images[:, :3].clamp(0, 1)).round().long()
        code = steps[:, 0]
        for channel in steps[:, 1:].unbind(1):
            code = 17 * code + channel
        ordered = code.flatten(1).sort(1).values
        return 1.0 + (ordered.diff(dim=1) > 0).sum(1)


class CommonValues(_Tone):
    """Part of the pixels with one of the eight most common values of the image."""

    name, unit, visible, weight = "pixels of the 8 commonest values", "%", 0.2, 0.25

    def of(self, look: Look) -> Tensor:
        steps = (255 * look.gray.clamp(0, 1)).round().long().flatten(1)
        counts = torch.zeros(len(steps), 256, device=steps.device).scatter_add_(1, steps, torch.ones_like(look.sorted))
        return counts.topk(8).values.sum(1) / steps.shape[1]
