# SPDX-License-Identifier: Apache-2.0
"""Readings of fine detail and of patterns that repeat."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.kinds.detail import steps_between
from genmonitor.functional.diagnosis.readings.base import Look, Reading


class _Detail(Reading):
    family = "detail"


class FlatPixels(_Detail):
    """Part of the pixels that hardly differ from their right and lower neighbors."""

    name, unit, visible = "flat pixels", "%", 0.08
    words = ("too smooth", "uneven")
    resembles = ("blurred", "noisy")

    def of(self, look: Look) -> Tensor:
        # a step below five of 255 is invisible
        return (look.steepness < 0.02).float().mean((1, 2))


class Grain(_Detail):
    """Mean difference from the mean of 3×3 pixels, over the calmest quarter of the pixels."""

    name, visible = "grain in calm parts", 0.008
    words = ("grainy", "too smooth")
    resembles = ("noisy", "blurred")

    def of(self, look: Look) -> Tensor:
        return look.calm.mean(1)


class SharpestEdges(_Detail):
    """Mean of the steepest 2 % of the steps."""

    name, visible, weight = "steepest edges", 0.06, 0.5
    words = ("harsh", "soft")
    resembles = ("sharpened", "blurred")

    def of(self, look: Look) -> Tensor:
        steps = look.steepness.flatten(1)
        return steps.topk(max(1, steps.shape[1] // 50)).values.mean(1)


class EdgeWidth(_Detail):
    """Range of the brightness, divided by the steepest steps."""

    name, unit, visible = "width of edges", "px", 0.3
    words = ("soft", "harsh")
    resembles = ("blurred", "sharpened")

    def of(self, look: Look) -> Tensor:
        steps = look.steepness.flatten(1)
        steepest = steps.topk(max(1, steps.shape[1] // 50)).values.mean(1)
        return (look.quantile(0.98) - look.quantile(0.02)) / steepest.clamp_min(0.02)


class FineDetail(_Detail):
    """Standard deviation of the detail that 3×3 averaging removes, divided by that of the image."""

    name, unit, visible = "contrast that is fine detail", "%", 0.04
    words = ("too much fine detail", "fine detail is missing")
    resembles = ("noisy", "blurred")

    def of(self, look: Look) -> Tensor:
        fine = look.residual.square().mean((1, 2)).sqrt()
        return fine / (look.gray.flatten(1).std(1) + 0.02)


class Specks(_Detail):
    """Part of the pixels that are far above or below all four neighbors."""

    name, unit, visible = "single pixels that stand out", "%", 0.01
    resembles = ("noisy", "blurred")

    def of(self, look: Look) -> Tensor:
        x = look.gray
        inner = x[:, 1:-1, 1:-1]
        beside = torch.stack([x[:, :-2, 1:-1], x[:, 2:, 1:-1], x[:, 1:-1, :-2], x[:, 1:-1, 2:]])
        outside = (inner - beside.amax(0)).clamp_min(0) + (beside.amin(0) - inner).clamp_min(0)
        # a speck is a quarter of the range beyond its neighbors
        return (outside > 0.25).float().mean((1, 2))


class _Pattern(Reading):
    family, visible, least_side, only = "pattern", 0.012, 8, "more"
    resembles = ("periodic", "")


class RowsOfTwo(_Pattern):
    """Difference between even and odd rows."""

    name, dim = "every second row stands out by", 1

    def of(self, look: Look) -> Tensor:
        means = look.gray.mean(3 - self.dim)
        return 2 * (means * _alternating(means)).mean(1).abs()


class ColumnsOfTwo(RowsOfTwo):
    """Difference between even and odd columns."""

    name, dim = "every second column stands out by", 2


class Checkerboard(_Pattern):
    """Difference between the two colors of a checkerboard of single pixels."""

    name = "checkerboard of single pixels"

    def of(self, look: Look) -> Tensor:
        x = look.gray
        signs = _alternating(x[0, 0]) * _alternating(x[0, :, 0])[:, None]
        return 2 * (x * signs).mean((1, 2)).abs()


class Frame(_Pattern):
    """Outermost pixels minus those next to them, as after padding with zeros."""

    name, visible, weight, only = "outermost pixels brighter by", 0.01, 0.5, ""
    signs = ("brighter", "darker")
    resembles = ("", "")

    def of(self, look: Look) -> Tensor:
        x = look.gray
        steps = x[:, 0] - x[:, 1], x[:, -1] - x[:, -2], x[:, :, 0] - x[:, :, 1], x[:, :, -1] - x[:, :, -2]
        return torch.cat(steps, 1).mean(1)


class GridOfFour(_Pattern):
    """Step across every fourth line, relative to other steps."""

    name, period = "step at every fourth line larger by", 4
    signs = ("larger", "smaller")

    def of(self, look: Look) -> Tensor:
        return steps_between(look.gray, self.period)


class GridOfEight(GridOfFour):
    """The same for every eighth line, as after JPEG."""

    name, period, least_side = "step at every eighth line larger by", 8, 24
    resembles = ("compressed", "")


class GridOfTwo(GridOfFour):
    """The same for every second line, as after a transposed convolution of stride 2."""

    name, period = "step at every second line larger by", 2


def _alternating(x: Tensor) -> Tensor:
    """Return 1, -1, 1 … along the last dimension."""
    return 1.0 - 2.0 * (torch.arange(x.shape[-1], device=x.device) % 2)
