# SPDX-License-Identifier: Apache-2.0
"""Faults of place, size and thickness."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.diagnosis.kinds.base import PART, Kind, both_ways, random_choice

_KARRAS = "Karras et al., 'Training Generative Adversarial Networks with Limited Data' (StyleGAN2-ADA), NeurIPS 2020, arXiv 2006.06676"
_LEAKS = "augmentation of training images that leaks into generated ones"


class Shifted(Kind):
    """Everything is moved by whole pixels."""

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


class Mirrored(Kind):
    """Left and right are exchanged."""

    name, unit, strengths = "mirrored", "of the images", (0.5, 1.0)
    words, change = "mirrored in {percent} % of the images", "s of the images are mirrored, left to right"
    cause, source = _LEAKS, _KARRAS
    remedy = "look for a random flip in the training transforms"
    of_all, bounds = True, PART

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        chosen, out = random_choice(images, strength, generator), images.clone()
        out[chosen] = images[chosen].flip(3)
        return out


class Rotated(Kind):
    """Images are rotated around their center."""

    name, strengths = "rotated", both_ways(6, 12, 25, 45)
    unit, opposite_unit = "counterclockwise", "clockwise"
    words, change = "rotated by {s}° {unit}", "images turn by s degrees around the center; the border is repeated"
    cause, source = _LEAKS, _KARRAS
    remedy = "look for rotations in the training transforms"
    of_all, bounds = True, (-180.0, 180.0)

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        return _transformed(images, math.radians(strength), 1.0)


class Zoomed(Kind):
    """Everything is larger or smaller."""

    name, strengths = "zoomed", both_ways(0.1, 0.2, 0.4)
    unit, opposite_unit = "larger", "smaller"
    words = "zoomed, everything {percent} % {unit}"
    change = "images grow by the part s around the center; the border is repeated where they shrink"
    cause, source = _LEAKS, _KARRAS
    remedy = "compare how training and generated images are cropped and resized"
    of_all, bounds = True, (-0.8, 4.0)

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        return _transformed(images, 0.0, 1 + strength)


class Thicker(Kind):
    """Bright parts have grown."""

    name, unit, strengths = "thicker", "px", both_ways(0.5, 1, 2)
    words, change = "bright parts thicker by {s} px", "what is bright grows by s pixels, what is dark shrinks"
    remedy = "compare how training images were resized with the generator's resolution"

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        sign, low = (1 if strength > 0 else -1), int(abs(strength))
        out = sign * images
        for _step in range(low):
            out = largest_beside(out)
        return sign * torch.lerp(out, largest_beside(out), abs(strength) - low)


class Thinner(Thicker):
    """Bright parts have shrunk."""

    name = "thinner"
    words, change = "bright parts thinner by {s} px", "what is bright shrinks by s pixels, what is dark grows"


Thicker.opposite = Thinner


def _transformed(images: Tensor, angle: float, scale: float) -> Tensor:
    """Rotate images counterclockwise by an angle in radians and enlarge them, around their center."""
    height, width = images.shape[2:]
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    matrix = torch.tensor([[cos, -sin * height / width, 0], [sin * width / height, cos, 0]]).to(images)
    grid = F.affine_grid(matrix.expand(len(images), -1, -1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def averaged(images: Tensor) -> Tensor:
    """Return the mean of 3×3 pixels; the last pixel continues beyond the border.

    Adding shifted images is several times faster than pooling.
    """
    x = F.pad(images, (1, 1, 1, 1), "replicate")
    x = x[..., 1:-1] + x[..., :-2] + x[..., 2:]
    return (x[..., 1:-1, :] + x[..., :-2, :] + x[..., 2:, :]) / 9


def largest_beside(images: Tensor) -> Tensor:
    """Return the largest of 3×3 pixels."""
    x = F.pad(images, (1, 1, 1, 1), "replicate")
    x = torch.maximum(torch.maximum(x[..., 1:-1], x[..., :-2]), x[..., 2:])
    return torch.maximum(torch.maximum(x[..., 1:-1, :], x[..., :-2, :]), x[..., 2:, :])
