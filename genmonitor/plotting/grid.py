# SPDX-License-Identifier: Apache-2.0
"""Images in rows and columns on one canvas, and one region of them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

GAP = 8
"""Pixels between two images."""
FAINT_PART = 0.2
"""Of what is shown faintly, this much is left."""


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


def region_alone(tiles: NDArray[Any], labels: NDArray[Any], region: int) -> NDArray[Any]:
    """Return images (n, H, W, 3) of which all but a region is faint.

    Args:
        tiles: images in [0, 1].
        labels: (h, w), of the same images at any resolution.
        region: its label.

    >>> region_alone(np.zeros((1, 2, 2, 3)), np.array([[1, 2]]), region=2)[0, :, :, 0]
    array([[0.8, 0. ],
           [0.8, 0. ]])
    """
    rows, columns = (
        ((np.arange(size) + 0.5) * of / size).astype(int)
        for size, of in zip(tiles.shape[1:3], labels.shape, strict=True)
    )
    inside = (labels == region)[rows[:, None], columns]
    faint: NDArray[Any] = np.where(inside[None, ..., None], tiles, 1 - FAINT_PART * (1 - tiles))
    return faint
