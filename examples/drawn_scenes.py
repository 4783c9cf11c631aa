# SPDX-License-Identifier: Apache-2.0
"""Scenes drawn in code, one thing on gray: shape, color, position, size; prompts that name as much as one likes.

With an encoder for each side: words are counted, drawings are measured. Nothing has to be downloaded or trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, normalize

SIDE = 32
SHAPES = ("square", "cross", "ring")
COLORS = {"red": (0.9, 0.1, 0.1), "green": (0.1, 0.8, 0.1), "blue": (0.1, 0.2, 0.95)}
VOCABULARY = ("a", "thing", *SHAPES, *COLORS)


@dataclass(frozen=True)
class Scenes:
    """Images [n, 3, 32, 32] in [-1, 1] and what is drawn in each: its center, x and y in [-1, 1], and its radius."""

    images: Tensor
    shapes: list[str]
    colors: list[str]
    centers: Tensor
    radii: Tensor

    def prompts(self, name_shape: bool = True, name_color: bool = True) -> list[str]:
        """Return a prompt per image: "a red square", "a square", "a red thing" or "a thing"."""
        colors = [f"{color} " if name_color else "" for color in self.colors]
        shapes = self.shapes if name_shape else ["thing"] * len(self.shapes)
        return [f"a {color}{shape}" for color, shape in zip(colors, shapes, strict=True)]


def draw_scenes(n: int, seed: int, shapes: Sequence[str] = SHAPES, colors: Sequence[str] = tuple(COLORS)) -> Scenes:
    """Draw scenes with shape, color, position and size at random, each independent of the others.

    Args:
        n: how many.
        seed: of the draw; torch's global random generator is left alone. With the same seed only the shapes, or only
            the colors, change where others are asked for.
        shapes: to choose from.
        colors: to choose from.

    Example:
        >>> scenes = draw_scenes(2, seed=0, colors=["red"])
        >>> scenes.images.shape, scenes.prompts(name_shape=False)
        (torch.Size([2, 3, 32, 32]), ['a red thing', 'a red thing'])
    """
    generator = torch.Generator().manual_seed(seed)
    shape, color, size, x, y = torch.rand(5, n, generator=generator)
    chosen_shapes = [shapes[int(len(shapes) * value)] for value in shape]
    chosen_colors = [colors[int(len(colors) * value)] for value in color]
    center, radius = 1.1 * torch.stack([x, y], 1) - 0.55, 0.25 + 0.15 * size
    covered = torch.empty(n, 1, SIDE, SIDE)
    for name in sorted(set(chosen_shapes)):
        rows = torch.tensor([chosen == name for chosen in chosen_shapes])
        covered[rows, 0] = cover(name, center[rows], radius[rows])
    paint = torch.tensor([COLORS[c] for c in chosen_colors])[:, :, None, None]
    return Scenes(2 * (covered * paint + (1 - covered) * 0.5) - 1, chosen_shapes, chosen_colors, center, radius)


def cover(shape: str, center: Tensor, radius: Tensor) -> Tensor:
    """How much of each pixel a shape covers, with edges one pixel soft: in [0, 1], and differentiable.

    Args:
        shape: one of `SHAPES`.
        center: x and y in [-1, 1], [..., 2].
        radius: [...].

    Returns:
        [..., 32, 32].
    """
    radius = radius[..., None, None]
    x, y = ((axis - at[..., None, None]) / radius for axis, at in zip(_grid(), center.unbind(-1), strict=True))
    return (0.5 - _distance(shape, x, y) * radius * SIDE / 2).clamp(0, 1)


def _distance(shape: str, x: Tensor, y: Tensor) -> Tensor:
    """How far outside the shape of radius 1 a point is; negative inside."""
    if shape == "square":
        return torch.maximum(x.abs(), y.abs()) - 0.75
    if shape == "cross":
        arms = torch.minimum(x.abs(), y.abs()) - 0.25
        return torch.maximum(arms, torch.maximum(x.abs(), y.abs()) - 1.1)
    if shape == "ring":
        return (torch.hypot(x, y) - 0.85).abs() - 0.22
    raise ValueError(f"Expected a shape out of {', '.join(SHAPES)}, but got {shape!r}.")


def bag_of_words(texts: Sequence[str]) -> Tensor:
    """Count the words of each text, [n, words].

    Raises:
        ValueError: if there is a word that no scene's prompt has.

    Example:
        >>> bag_of_words(["a red square", "a thing"]).int().tolist()
        [[1, 0, 1, 0, 0, 1, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]]
    """
    unknown = {word for text in texts for word in text.split()} - set(VOCABULARY)
    if unknown:
        raise ValueError(f"Expected words out of {', '.join(VOCABULARY)}, but got {', '.join(sorted(unknown))}.")
    return torch.tensor([[float(text.split().count(word)) for word in VOCABULARY] for text in texts])


def describe(images: Tensor) -> Tensor:
    """Measure drawings as a person would describe them: [n, 93], five blocks of length 1.

    The color that is not gray; the silhouette, wherever and however large it is drawn (9×9); where it is from left to
    right and from top to bottom; how large it is. Each block is a direction, so similar drawings have a cosine near 1.
    """
    drawn = images.abs().amax(1)
    drawn = drawn / drawn.amax((1, 2), keepdim=True).clamp_min(1e-6)
    mass = drawn.sum((1, 2)).clamp_min(1e-6)
    across, down = (axis.to(images.device) for axis in _grid())
    x, y = ((drawn * axis).sum((1, 2)) / mass for axis in (across, down))
    off_center = (across - x[:, None, None]).square() + (down - y[:, None, None]).square()
    size = ((drawn * off_center).sum((1, 2)) / mass).sqrt()
    color = ((images + 1) * drawn[:, None]).sum((2, 3))
    near, at = torch.linspace(-2, 2, 9, device=images.device), torch.stack([x, y], -1)[:, None, None]
    window = torch.stack(torch.meshgrid(near, near, indexing="xy"), -1) * size[:, None, None, None] + at
    silhouette = grid_sample(drawn[:, None], window, align_corners=True).flatten(1)
    places = (_soft(value, (-0.5, 0.0, 0.5), 0.3) for value in (x, y))
    return torch.cat([normalize(color), normalize(silhouette), *places, _soft(size, (0.15, 0.25, 0.35), 0.1)], dim=1)


def _soft(values: Tensor, centers: Sequence[float], width: float) -> Tensor:
    """Say of each value how near it is to each center, as a direction [n, centers]."""
    offsets = (values[:, None] - torch.tensor(centers, device=values.device)) / width
    return normalize((-offsets.square() / 2).exp())


def _grid() -> tuple[Tensor, Tensor]:
    """Return x and y of every pixel, each [32, 32] in [-1, 1]."""
    axis = torch.linspace(-1, 1, SIDE)
    across, down = torch.meshgrid(axis, axis, indexing="xy")
    return across, down
