# SPDX-License-Identifier: Apache-2.0
"""Faces drawn in code: aligned, in color, with eyes and mouths of several shapes."""

from __future__ import annotations

import torch
from torch import Tensor


def faces(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return faces in color at 32×32 whose eyes and mouths are aligned; the class is the shape of the eyes."""
    y, x = torch.meshgrid(*2 * [torch.linspace(-1, 1, 32)], indexing="ij")

    def some(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(n, *shape, 1, 1, generator=generator)

    def color(*rgb: tuple[float, float, float]) -> Tensor:
        chosen = torch.tensor(rgb)[torch.randint(len(rgb), (n,), generator=generator)]
        return chosen[:, :, None, None] * some(0.85, 1.15, 3)

    def put(below: Tensor, inside: Tensor, paint: Tensor) -> Tensor:
        cover = (inside * 16).sigmoid()[:, None]
        return below + cover * (paint - below)

    cx, cy = some(-0.05, 0.05), some(-0.05, 0.05)
    u, v, eyes = x - cx, y - cy, torch.randint(3, (n,), generator=generator)
    image = some(0.2, 0.9, 3) + some(-0.15, 0.15, 3) * y
    hair, skin = color((0.15, 0.1, 0.08), (0.45, 0.28, 0.12), (0.8, 0.65, 0.3)), some(0.35, 0.95, 1)
    skin = skin * torch.tensor([1.0, 0.78, 0.62])[:, None, None]
    width, height = some(0.52, 0.66), some(0.72, 0.84)
    image = put(image, 1 - torch.hypot(u / (width + 0.12), (v + 0.12) / (height + 0.05)), hair)
    image = put(image, 1 - torch.hypot(u / width, (v - 0.08) / height), skin * (1 + some(-0.25, 0.25, 1) * u[:, None]))
    tall = torch.tensor([0.13, 0.06, 0.02])[eyes][:, None, None]
    apart, iris = some(0.24, 0.32), color((0.2, 0.3, 0.6), (0.3, 0.2, 0.1), (0.2, 0.45, 0.25))
    for side in (-1, 1):
        eye = torch.hypot((u - side * apart) / 0.14, (v + 0.1) / tall)
        image = put(image, 0.3 * (1 - eye), torch.full((3, 1, 1), 0.95))
        image = put(image, 0.07 - torch.maximum(torch.hypot(u - side * apart, v + 0.1), 0.07 * eye), iris)
        image = put(image, 0.03 - (v + 0.3).abs() - 0.4 * ((u - side * apart).abs() - 0.13).clamp(min=0), 0.7 * hair)
    bow, open_ = some(-0.25, 0.6), some(0.02, 0.08)
    mouth = open_ - (v - 0.42 + bow * (u.square() - 0.03)).abs() - (u.abs() - 0.22).clamp(min=0)
    return put(image, mouth, color((0.75, 0.25, 0.25), (0.6, 0.3, 0.3))).clamp(0, 1), eyes
