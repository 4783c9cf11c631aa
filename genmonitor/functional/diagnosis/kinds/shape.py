# SPDX-License-Identifier: Apache-2.0
"""Faults of where things are and how thick."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.diagnosis.kinds.base import Kind, both_ways

_STROKES = "compare how training images were resized with the generator's resolution"


class Shifted(Kind):
    """Everything has moved by whole pixels."""

    name, strengths = "shifted", both_ways(1, 2, 3, 4)
    words, change = "shifted by {s} {unit}", "images move by s whole pixels; the border is repeated"
    cause = "resizing to the nearest pixel, which may move images"
    source = "github.com/pytorch/pytorch/issues/34808"
    remedy = "look at padding, cropping, and how images are resized"
    whole = True

    def __init__(self, down: bool = False) -> None:
        self.dim = 2 if down else 3
        self.unit, self.opposite_unit = ("px down", "px up") if down else ("px to the right", "px to the left")

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        size = images.shape[self.dim]
        source = torch.arange(size, device=images.device) - round(strength)
        return images.index_select(self.dim, source.clamp(0, size - 1))


Shifted.opposite = Shifted


class Thicker(Kind):
    """What is bright has grown."""

    name, unit, strengths = "thicker", "px", both_ways(0.5, 1, 2)
    words, change = "bright parts thicker by {s} px", "what is bright grows by s pixels, what is dark shrinks"
    remedy = _STROKES

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        sign, low = (1 if strength > 0 else -1), int(abs(strength))
        out = sign * images
        for _step in range(low):
            out = largest_beside(out)
        return sign * torch.lerp(out, largest_beside(out), abs(strength) - low)


class Thinner(Thicker):
    """What is bright has shrunk."""

    name = "thinner"
    words, change = "bright parts thinner by {s} px", "what is bright shrinks by s pixels, what is dark grows"


Thicker.opposite = Thinner


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
