# SPDX-License-Identifier: Apache-2.0
"""Figures of the monitor: matplotlib `Figure` objects on the Agg canvas, without pyplot.

A cluster has the same color and number in every figure; label 0, the constant sites, is gray. Images, labels
and matrices may be tensors on any device, numpy arrays or lists.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from genmonitor.plotting.style import (
    GAP,
    INK,
    Array,
    add_axes,
    add_region_legend,
    new_figure,
    paste,
    printable,
    show_regions,
    to_array,
    to_tiles,
)

SHOWN = 16
"""Largest number of images of a set."""


def cluster_map(labels: Array, names: Mapping[int, str] | None = None, image: Array | None = None) -> Figure:
    """Draw the clusters as a map with the size of each, over an average image if given.

    Args:
        labels: Labels (H, W), integers at pixel resolution, 0 for constant sites, 1..C for clusters.
        names: Names of regions, by label.
        image: Image (c, H, W) in any range; its contrast is stretched, its colors become gray.

    Raises:
        ValueError: If labels and image differ in height or width.

    >>> figure = cluster_map([[0, 1], [1, 2]])
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['cluster 1 (2 px)', 'cluster 2 (1 px)', 'constant (1 px)']
    """
    labels, gray = to_array(labels), None
    if image is not None:
        gray = to_array(image).mean(0)
        gray = (gray - gray.min()) / max(np.ptp(gray), 1e-12)
    figure = new_figure(760, 600, "Clusters of pixels" if gray is None else "Clusters over the average real image")
    show_regions(add_axes(figure, 18, 18, 520, 520), labels, gray)
    add_region_legend(figure, labels, 545 / 760, 540 / 600, names or {})
    return figure


def side_by_side(
    sets: Mapping[str, Array],
    value_range: tuple[float, float] = (0.0, 1.0),
    title: str = "",
    note: str = "",
) -> Figure:
    """Draw images of each set.

    Args:
        sets: Images (n, c, H, W) of one size, by name; at most the first 16 of each are shown.
        value_range: Values to show as black and as white.
        title: Title.
        note: Text below the title.

    >>> figure = side_by_side({"real": [[[[0, 1]]]], "fake": [[[[1, 1]]]]}, title="cluster 2 differs")
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['real', 'fake']
    """
    columns, margin, between, head = 4, 18, 36, 92
    left = margin
    drawn = {name: to_tiles(to_array(images)[:SHOWN], value_range) for name, images in sets.items()}
    pasted = {name: paste(tiles, columns)[0] for name, tiles in drawn.items()}
    tile_width = next(iter(drawn.values())).shape[2]
    width = columns * (tile_width + GAP) - GAP
    height = max(canvas.shape[0] for canvas in pasted.values())
    full = max(len(sets) * (width + between) - between + 2 * margin, 480)
    room = full - 2 * margin  # for letters some 10 pixels wide in the title, 8 in the note
    heading = (printable(title, int(room / 10.2)), printable(note, int(room / 8)))
    figure = new_figure(full, height + head + margin, *heading)
    for name, canvas in pasted.items():
        ax = add_axes(figure, left, margin + height - canvas.shape[0], canvas.shape[1], canvas.shape[0], bare=True)
        ax.imshow(canvas, interpolation="nearest")
        ax.set_title(printable(name, int(width / 8)), y=1.0, loc="left", fontsize=11, color=INK)
        left += width + between
    return figure
