# SPDX-License-Identifier: Apache-2.0
"""Real images and sets of generated ones, side by side."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from genmonitor.plotting.grid import GAP, paste, region_alone
from genmonitor.plotting.style import INK, Array, add_axes, cluster_color, new_figure, printable, to_array, to_tiles

COLUMNS, ROWS = 4, 4
_MARGIN, _BETWEEN, _HEAD = 18, 36, 92


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
