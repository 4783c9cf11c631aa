# SPDX-License-Identifier: Apache-2.0
"""The images that `diagnosis.py` draws from: six sets of 28 or 32 pixels, three gray and three in color."""

from __future__ import annotations

import functools
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
from drawn_faces import faces  # noqa: E402
from drawn_scenes import SHAPES, draw_scenes  # noqa: E402
from regions import photographs, three_regions  # noqa: E402

TOTAL = 6000
"""Images of each set."""


def generator_of(*words: object) -> torch.Generator:
    """Return a random generator that depends on what it is for alone: no two rows share their draws."""
    return torch.Generator().manual_seed(zlib.crc32(repr(words).encode()))


@dataclass(frozen=True)
class ImageSet:
    """Images [n, c, h, w] in about [0, 1], and the class of each, int64 [n], all 0 where there are none."""

    images: Tensor
    labels: Tensor

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return n images to spoil and n real ones, none of them the same."""
        order = torch.randperm(len(self.images), generator=generator)
        return self.images[order[:n]].clone(), self.images[order[n : 2 * n]]


def digits(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return scikit-learn's digits at 28×28, each turned, sheared, scaled and moved a little."""
    loaded = load_digits()
    chosen = torch.randint(len(loaded.target), (n,), generator=generator)
    angle, shear, scale, x, y = 2 * torch.rand(5, n, generator=generator) - 1
    angle, scale = 0.25 * angle, 1 / (0.9 + 0.12 * scale)
    across = torch.stack([scale * angle.cos(), scale * (0.2 * shear - angle.sin()), 0.12 * x], 1)
    down = torch.stack([scale * angle.sin(), scale * angle.cos(), 0.12 * y], 1)
    grid = affine_grid(torch.stack([across, down], 1), [n, 1, 28, 28], align_corners=False)
    small = torch.tensor(loaded.images / 16, dtype=torch.float32)[chosen][:, None]
    large = grid_sample(small, grid, mode="bicubic", align_corners=False).clamp(0, 1)
    return large * large * (3 - 2 * large), torch.tensor(loaded.target)[chosen]


def clothes(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return silhouettes at 28×28 of shirts, trousers, dresses, bags and boots, shaded, some of them striped."""
    y, x = torch.meshgrid(*2 * [torch.linspace(-1, 1, 28)], indexing="ij")
    kind = torch.randint(5, (n,), generator=generator)
    wide, long, flare, light, slope, stripes, pitch = torch.rand(7, n, 1, 1, generator=generator)
    wide, bottom = 0.3 + 0.2 * wide, 0.55 + 0.35 * long
    sleeve = 0.55 * (y < -0.2 + 0.7 * long) * (y > -0.75 + 0.3 * (x.abs() - wide))
    legs = wide - 0.9 * (x.abs() < 0.03 + 0.12 * (y + 1)) * (y > -0.25)
    handle = (torch.hypot(x, y + 0.35) - 0.4).abs() < 0.09
    halves = torch.stack(
        [
            wide + sleeve.clamp(max=0.45),
            legs + 0.05 * flare,
            wide * (0.5 + 0.5 * (y + 0.2).abs() + 0.9 * flare * (y + 0.3).clamp(min=0)),
            torch.where(y > -0.3, 0.55 + 0.3 * flare, torch.where(handle, 1.0, -1.0)),
            torch.where(y > 0.25, 0.75, wide - 0.1 + 0 * y),
        ]
    )[kind, torch.arange(n)]
    offset = 0.35 * ((kind == 4)[:, None, None] & (y < 0.25))
    edge = torch.minimum(halves - (x + offset).abs(), bottom - y.abs())
    pattern = 1 + 0.25 * (stripes > 0.5) * torch.sin((6 + 12 * pitch) * torch.where(stripes > 0.75, x, y))
    shade = (0.35 + 0.5 * light) * pattern * (1 + 0.3 * (2 * slope - 1) * x)
    return ((edge * 12).sigmoid() * shade).clamp(0, 1)[:, None], kind


def ovals(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return gray ovals with a mouth at 28×28, with noise in each pixel."""
    return (three_regions(n, 28)[0] + 1) / 2, torch.zeros(n, dtype=torch.long)


def scenes(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the examples' scenes in color at 32×32: one thing on gray, anywhere; the class is its shape."""
    drawn = draw_scenes(n, seed=0)
    return (drawn.images + 1) / 2, torch.tensor([SHAPES.index(shape) for shape in drawn.shapes])


def patches(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return patches in color at 32×32 from anywhere in scikit-learn's two photographs."""
    return photographs(n, 32, color=True)[0], torch.zeros(n, dtype=torch.long)


SETS: dict[str, Callable[[int, torch.Generator], tuple[Tensor, Tensor]]] = {
    "digits": digits,
    "clothes": clothes,
    "ovals": ovals,
    "faces": faces,
    "scenes": scenes,
    "photographs": patches,
}


@functools.cache
def image_set(name: str) -> ImageSet:
    """Return one of the sets."""
    return ImageSet(*SETS[name](TOTAL, torch.Generator().manual_seed(0)))
