# SPDX-License-Identifier: Apache-2.0
"""Readings of the figure, the part that stands out from the border: its place, size and slant."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.readings.base import FIGURE, Look, Reading


class _Shape(Reading):
    family, least_side, needs_place = "shape", 8, True


class _Figure(_Shape):
    needs_background = True


class Area(_Figure):
    """Part of the pixels that the figure covers."""

    name, unit = "area of the figure", "%"

    def of(self, look: Look) -> Tensor:
        return look.figure.float().mean((1, 2))


class FaintTraces(_Figure):
    """Part of the pixels that differ a little from the usual color of the border: specks, halos, ghosts of outlines."""

    name, unit, visible, only = "faint traces on the background", "%", 0.03, "more"
    weight = 0.5  # whatever is not flat has some

    def of(self, look: Look) -> Tensor:
        # differences that a person sees on a plain background, five of 255, up to those of the figure
        faint = (look.contrast_to_border > 0.02) & (look.contrast_to_border <= FIGURE)
        return faint.float().mean((1, 2))


class Pieces(_Figure):
    """Number of connected parts of the figure."""

    name, visible, weight = "pieces of the figure", 0.7, 0.7

    def of(self, look: Look) -> Tensor:
        return _pieces(look.figure)


class Holes(_Figure):
    """Number of connected parts outside the figure."""

    name, visible, weight = "holes and gaps in the figure", 0.7, 0.7

    def of(self, look: Look) -> Tensor:
        return _pieces(~look.figure)


class CenterAcross(_Figure):
    """Horizontal center of mass of the figure, 0 at the left and 1 at the right."""

    name, unit, dim = "center of the figure from the left", "%", 2

    def of(self, look: Look) -> Tensor:
        return look.mass.sum(3 - self.dim) @ _positions(look.mass, self.dim)


class CenterDown(CenterAcross):
    """Vertical center of mass of the figure, 0 at the top and 1 at the bottom."""

    name, dim = "center of the figure from the top", 1


class Slant(_Figure):
    """Shift of the figure to the right from bottom to top."""

    name, unit, visible = "slanted to the right by", "px per px", 0.15  # 9 degrees
    signs = ("to the right", "to the left")

    def of(self, look: Look) -> Tensor:
        y, x = (_positions(look.mass, dim) for dim in (1, 2))
        y, x = y[:, None], x[None]
        mean_y, mean_x = ((look.mass * at).sum((1, 2))[:, None, None] for at in (y, x))
        both = (look.mass * (y - mean_y) * (x - mean_x)).sum((1, 2))
        return -both / (look.mass * (y - mean_y).square()).sum((1, 2)).clamp_min(1e-4)


class MirrorSymmetry(_Shape):
    """Correlation of the image with its mirror image."""

    name, visible = "left-right symmetry", 0.1

    def of(self, look: Look) -> Tensor:
        x = look.gray - look.gray.mean((1, 2), keepdim=True)
        return (x * x.flip(2)).mean((1, 2)) / (x.square().mean((1, 2)) + 1e-4)


class LeftBrighter(_Shape):
    """Mean of the left half minus that of the right half."""

    name, weight = "left half brighter than right by", 0.5
    signs = ("brighter", "darker")

    def of(self, look: Look) -> Tensor:
        half = look.gray.shape[2] // 2
        return look.gray[:, :, :half].mean((1, 2)) - look.gray[:, :, -half:].mean((1, 2))


class TopBrighter(_Shape):
    """Mean of the upper half minus that of the lower half."""

    name, weight = "upper half brighter than lower by", 0.5
    signs = ("brighter", "darker")

    def of(self, look: Look) -> Tensor:
        half = look.gray.shape[1] // 2
        return look.gray[:, :half].mean((1, 2)) - look.gray[:, -half:].mean((1, 2))


class HorizontalEdges(_Shape):
    """Part of the squared steps that run from top to bottom, across horizontal edges."""

    name, unit, weight, needs_place = "horizontal edges among all", "%", 0.7, False

    def of(self, look: Look) -> Tensor:
        lying, standing = (x.square().mean((1, 2)) for x in (look.down, look.across))
        return lying / (lying + standing).clamp_min(1e-6)


def _positions(mass: Tensor, dim: int) -> Tensor:
    """Return the positions of pixels along a dimension, from 0 to 1."""
    return torch.linspace(0, 1, mass.shape[dim], device=mass.device)


def _pieces(masks: Tensor) -> Tensor:
    """Return the number of connected pieces of four pixels or more of each mask [N, H, W]."""
    from scipy.ndimage import generate_binary_structure, label

    joined = generate_binary_structure(3, 2)
    joined[0], joined[2] = False, False  # images are apart from each other
    numbered, count = label(masks.cpu().numpy(), structure=joined)
    sizes = torch.from_numpy(numbered).flatten()
    image = torch.arange(len(masks)).repeat_interleave(masks[0].numel())
    first = torch.zeros(count + 1, dtype=torch.long).index_copy(0, sizes.long(), image)
    large = torch.bincount(sizes, minlength=count + 1)[1:] >= 4
    return torch.bincount(first[1:][large], minlength=len(masks)).to(masks.device).float()
