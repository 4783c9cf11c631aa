# SPDX-License-Identifier: Apache-2.0
"""Images in rows and columns, one region of them alone, and sets of them side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from genmonitor.plotting.style import INK, Array, add_axes, cluster_color, new_figure, printable, to_array, to_tiles

GAP = 8
"""Pixels between two images."""
FAINT_PART = 0.2
"""Of what is shown faintly, this much is left."""
COLUMNS, ROWS = 4, 4
_MARGIN, _BETWEEN, _HEAD = 18, 36, 92


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


def side_by_side(
    sets: Mapping[str, Array],
    labels: Array,
    region: int | None = None,
    value_range: tuple[float, float] = (0.0, 1.0),
    title: str = "",
    note: str = "",
) -> Figure:
    """Draw images of each set as they are; above them a region alone, of those of the first row.

    Args:
        sets: name to images (n, c, H, W), of one size; the first 16 or fewer of each are shown.
        labels: (H, W) int at pixel resolution.
        region: the label of the region to show alone, 0 for the constant sites; None for none.
        value_range: what to show as black and as white.
        title: in the region's color.
        note: below the title.

    >>> figure = side_by_side({"real": [[[[0, 1]]]], "fake": [[[[1, 1]]]]}, [[1, 2]], region=2, title="cluster 2")
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['real', 'fake']
    """
    labels, left = to_array(labels), _MARGIN
    drawn = {name: to_tiles(to_array(images)[: COLUMNS * ROWS], value_range) for name, images in sets.items()}
    pasted = {name: paste(tiles, COLUMNS)[0] for name, tiles in drawn.items()}
    if region is not None:
        for name, tiles in drawn.items():
            alone, _ = paste(region_alone(tiles[:COLUMNS], labels, region), COLUMNS)
            space = np.ones((2 * GAP, alone.shape[1], 3))
            pasted[name] = np.concatenate([alone, space, pasted[name]])
    tile_width = next(iter(drawn.values())).shape[2]
    width = COLUMNS * (tile_width + GAP) - GAP
    height = max(canvas.shape[0] for canvas in pasted.values())
    full = max(len(sets) * (width + _BETWEEN) - _BETWEEN + 2 * _MARGIN, 480)
    color = cluster_color(region) if region else INK
    room = full - 2 * _MARGIN  # for letters some 10 pixels wide in the title, 8 in the note
    head = (printable(title, int(room / 10.2)), printable(note, int(room / 8)))
    figure = new_figure(full, height + _HEAD + _MARGIN, *head, color)
    for name, canvas in pasted.items():
        ax = add_axes(figure, left, _MARGIN + height - canvas.shape[0], canvas.shape[1], canvas.shape[0])
        ax.imshow(canvas, interpolation="nearest")
        ax.set_axis_off()
        ax.set_title(printable(name, int(width / 8)), loc="left", fontsize=11, color=INK)
        left += width + _BETWEEN
    return figure
