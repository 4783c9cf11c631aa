# SPDX-License-Identifier: Apache-2.0
"""DiversityMonitor's figures: the samples at the ends of each mode."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from genmonitor.plotting.style import (
    Array,
    add_picture,
    add_text,
    cluster_color,
    new_figure,
    printable,
    to_array,
    to_tiles,
)


def mode_samples(
    shares: Sequence[float],
    images: Array,
    prompts: Sequence[Sequence[str]] | None,
    value_range: tuple[float, float] = (0.0, 1.0),
) -> Figure:
    """Draw the samples at both ends of each of the model's own modes, whose differences show the mode.

    Args:
        shares: Share of each mode of the model's own variety.
        images: Images (modes, 2k, c, H, W), k samples from each end.
        prompts: Prompts, 2k for each mode, shortened if they are long. None for samples without prompts.
        value_range: Values to show as black and as white.
    """
    images = to_array(images)
    rows, columns = images.shape[:2]
    tiles = to_tiles(images.reshape(-1, *images.shape[2:]), value_range)
    height, width, gap, text, middle, side = *tiles.shape[1:3], 8, 17, 34, 96
    xs = [side + c * (width + gap) + (middle if c >= columns // 2 else 0) for c in range(columns)]
    removed, own = ("", "") if prompts is None else ("Prompts removed. ", " by itself")
    note = f"{removed}Each row: the samples at the two ends of one mode."
    size = (max(xs[-1] + width + 18, 520), rows * (height + gap + text) + 92)
    figure = new_figure(*size, f"What the model varies{own}", note)
    for c, head in ((0, "one end"), (columns // 2, "the other end")):
        add_text(figure, xs[c], 84, head)
    for row in range(rows):
        top = 92 + row * (height + gap + text)
        label = f"mode {row + 1}\n{100 * shares[row]:.0f} %"
        add_text(figure, 18, top + height / 2, label, cluster_color(4), va="center")
        for c in range(columns):
            add_picture(figure, xs[c], top, tiles[row * columns + c])
            if prompts is not None:
                prompt = printable(prompts[row][c], int(width / 5.6))
                add_text(figure, xs[c] + width / 2, top + height + 3, prompt, fontsize=9, ha="center", va="top")
    return figure
