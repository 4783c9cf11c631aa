# SPDX-License-Identifier: Apache-2.0
"""Images in rows and columns on one canvas, and the outline of a region on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from genmonitor.plotting.style import add_outline, boundaries, cluster_color

GAP = 8
"""Pixels between two images."""


def paste(tiles: NDArray[Any], columns: int) -> tuple[NDArray[Any], list[tuple[int, int]]]:
    """Return images (n, H, W, 3) on one white canvas, row by row, and the upper left corner (x, y) of each.

    >>> canvas, corners = paste(np.zeros((3, 10, 10, 3)), columns=2)
    >>> canvas.shape, corners
    ((28, 28, 3), [(0, 0), (18, 0), (0, 18)])
    """
    height, width = tiles.shape[1:3]
    corners = [(n % columns * (width + GAP), n // columns * (height + GAP)) for n in range(len(tiles))]
    canvas = np.ones((corners[-1][1] + height, max(x for x, _ in corners) + width, 3))
    for tile, (x, y) in zip(tiles, corners, strict=True):
        canvas[y : y + height, x : x + width] = tile
    return canvas, corners


def outline_region(ax: Axes, labels: NDArray[Any], region: int, height: int, corners: list[tuple[int, int]]) -> None:
    """Outline a region on images of so many pixels' height that stand at these corners."""
    outline = (boundaries(labels == region, border=True) + 0.5) * (height / labels.shape[0]) - 0.5
    add_outline(ax, np.concatenate([outline + corner for corner in corners]), cluster_color(region), 1.6, "white")
