# SPDX-License-Identifier: Apache-2.0
"""DiversityMonitor's figures: the samples at the ends of each mode and the least varied prompts."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

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


def least_varied(rows: Sequence[tuple[str, float, str, Array]], value_range: tuple[float, float] = (0, 1)) -> Figure:
    """Draw the prompts whose images are most alike, with W1KP, the closest pair and some other images of each.

    Args:
        rows: Rows of prompt, W1KP, a remark, and images (k, c, H, W), the two most similar ones first. At least one
            row, the least varied first.
        value_range: Values to show as black and as white.
    """
    tiles = [to_tiles(to_array(images), value_range) for *_, images in rows]
    height, width = tiles[0].shape[1:3]
    words, head, gap, between, middle = 300, 88, 14, 6, 24
    most = max(map(len, tiles))
    xs = [18 + words + column * (width + between) + (middle if column > 1 else 0) for column in range(most)]
    size = (max(xs[-1] + width + 18, 560), head + len(rows) * (height + gap) + 6)
    note = "W1KP: 1 where all images of a prompt are alike, 0 where they differ as much as any."
    figure = new_figure(*size, "The least varied prompts", note)
    for x, above in zip(xs[::2], ("closest pair", "others"), strict=False):
        add_text(figure, x, 78, above)
    for row, ((prompt, w1kp, remark, _), some) in enumerate(zip(rows, tiles, strict=True)):
        top = head + row * (height + gap)
        text = f"{fill(printable(prompt, 66), 34)}\n{w1kp:.2f}  {remark}"
        add_text(figure, 18, top + height / 2, text, va="center")
        for x, tile in zip(xs, some, strict=False):
            add_picture(figure, x, top, tile)
    return figure
