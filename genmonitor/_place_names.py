# SPDX-License-Identifier: Apache-2.0
"""Names of places in an image, such as "upper right corner"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _Mask = NDArray[np.bool_]

WHOLE, MOST = 0.95, 0.8
"""Fractions that count as all and as nearly all."""


def describe_place(inside: Tensor) -> str:
    """Return the place of the marked sites of an image in a few words.

    Args:
        inside: Boolean mask [h, w], true somewhere.

    Example:
        >>> import torch
        >>> corner = torch.zeros(8, 8, dtype=torch.bool)
        >>> corner[:3, 5:] = True
        >>> describe_place(corner), describe_place(~corner), describe_place(torch.ones(2, 2).bool())
        ('upper right', 'most of the image', 'whole image')
    """
    mask = inside.cpu().numpy().astype(bool)
    if mask.mean() >= WHOLE:
        return "whole image"
    if is_ring(mask):
        return "outer ring"
    parts = _large_parts(mask)
    if not parts:
        half = _half_with_all(mask)
        return f"scattered, {half}" if half else "scattered"
    return " and ".join(dict.fromkeys(_place_of_one(part) for part in parts))


def describe_area(inside: Tensor) -> str:
    """Return the place and size of an area of an image in words, in pixels, width × height.

    Args:
        inside: Boolean mask [h, w], true somewhere.

    Example:
        >>> import torch
        >>> corner = torch.zeros(32, 32, dtype=torch.bool)
        >>> corner[:8, 24:] = True
        >>> describe_area(corner), describe_area(~corner), describe_area(torch.ones(2, 2).bool())
        ('upper right corner, 8×8 px', 'most of the image', 'whole image')
    """
    mask, place = inside.cpu().numpy().astype(bool), describe_place(inside)
    if place in ("whole image", "most of the image"):
        return place
    if place == "outer ring":
        return f"border, {_width_of_ring(mask)} px wide"
    rows, columns = np.nonzero(mask.any(1))[0], np.nonzero(mask.any(0))[0]
    high, wide = np.ptp(rows) + 1, np.ptp(columns) + 1
    h, w = mask.shape
    no_box = " and " in place or place.startswith("scattered") or (4 * high >= 3 * h and 4 * wide >= 3 * w)
    if no_box or mask.sum() < 0.4 * high * wide:
        return f"{place}, {mask.sum()} px"
    if len(place.split()) == 2 and {0, h - 1} & {*rows} and {0, w - 1} & {*columns}:
        place += " corner" * (place.split()[0] in ("upper", "lower") and place.split()[1] in ("left", "right"))
    return f"{place}, {wide}×{high} px"


def _place_of_one(mask: _Mask) -> str:
    """Return the place of connected sites in words."""
    h, w = mask.shape
    y, x = ((place + 0.5) / size for place, size in zip(np.nonzero(mask), (h, w), strict=True))
    high, wide = (np.ptp(place) + 1 / size >= 0.75 for place, size in ((y, h), (x, w)))
    if high and wide and mask.mean() > 0.5:
        return "most of the image"
    vertical, horizontal = _side(y, ("upper", "lower")), _side(x, ("left", "right"))
    if wide and not high and not horizontal:
        edge = {"upper": "top edge", "lower": "bottom edge"}.get(vertical)
        strip = edge if edge and _at_edge(y, h) else f"{vertical or 'middle'} band"
        return strip if not vertical or np.ptp(y) + 1 / h <= 0.25 else f"{vertical} half"
    if high and not wide and not vertical:
        strip = f"{horizontal} {'edge' if _at_edge(x, w) else 'band'}" if horizontal else "vertical middle band"
        return strip if not horizontal or np.ptp(x) + 1 / w <= 0.34 else f"{horizontal} half"
    if vertical and horizontal:
        return f"{vertical} {horizontal}"
    return f"{vertical} middle" if vertical else f"middle {horizontal}" if horizontal else "center"


def _side(place: NDArray[np.float64], names: tuple[str, str]) -> str:
    """Return the side of the image of sites with a mean position in [0, 1]; "" in the middle."""
    mean = float(place.mean())
    return names[0] if mean < 0.42 else names[1] if mean > 0.58 else ""


def _at_edge(place: NDArray[np.float64], size: int) -> bool:
    """Return True if less than an eighth of the image is between sites and its edge."""
    return bool(min(place.min(), 1 - place.max()) - 0.5 / size < 0.125)


def is_ring(mask: _Mask) -> bool:
    """Return True if sites cover most of the image's border and leave its middle free."""
    h, w = mask.shape
    if min(h, w) < 3:
        return False
    border = np.ones_like(mask)
    border[1:-1, 1:-1] = False
    middle = np.zeros_like(mask)
    middle[h // 3 : -(h // 3), w // 3 : -(w // 3)] = True
    return bool(mask[border].mean() >= 0.7 and mask[middle].mean() <= 0.1)


def _width_of_ring(mask: _Mask) -> int:
    """Return the width of a whole border with the same number of sites, at least 1."""
    h, w = mask.shape
    counts = [h * w - max(0, h - 2 * k) * max(0, w - 2 * k) for k in range(1, (min(h, w) + 1) // 2 + 1)]
    return 1 + int(np.abs(np.array(counts) - mask.sum()).argmin())


def _large_parts(mask: _Mask) -> list[_Mask]:
    """Return the one or two connected parts with most of the sites, the largest first; otherwise none."""
    from scipy.ndimage import label

    numbered, count = label(mask, structure=np.ones((3, 3)))
    sizes = np.bincount(numbered.ravel(), minlength=count + 1)[1:] / mask.sum()
    order = np.argsort(-sizes, kind="stable")
    if sizes[order[0]] >= MOST:
        return [numbered == order[0] + 1]
    if count > 1 and sizes[order[:2]].sum() >= MOST and sizes[order[1]] >= 0.2:
        return [numbered == index + 1 for index in order[:2]]
    return []


def _half_with_all(mask: _Mask) -> str | None:
    """Return the half of the image with all sites, or nearly all; None if there is none."""
    h, w = mask.shape
    halves = {
        "upper half": mask[: h // 2],
        "lower half": mask[-(h // 2) :],
        "left half": mask[:, : w // 2],
        "right half": mask[:, -(w // 2) :],
    }
    name, most = max(halves.items(), key=lambda half: int(half[1].sum()))
    return name if most.sum() >= WHOLE * mask.sum() else None
