# SPDX-License-Identifier: Apache-2.0
"""A diagnosis in one figure: the map of differences, the fault put into real images, and the explained shares."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from genmonitor.plotting.style import (
    INK,
    Array,
    add_axes,
    add_outline,
    boundaries,
    new_figure,
    paste,
    printable,
    to_array,
    to_tiles,
)

_MAP, _TITLE = 270, 22
"""Side of the map, and height of a line of the title, in pixels."""
_MARK = "#D40078"


def diagnosis_figure(
    average: Array,
    drawn: tuple[Array, Array] | None,
    areas: Sequence[Array],
    examples: Mapping[str, Array],
    shares: Mapping[str, float] | None,
    value_range: tuple[float, float] = (0.0, 1.0),
    title: str = "",
    note: str = "",
) -> Figure:
    """Draw the map over the average real image, rows of examples with the first area outlined, and the shares.

    Args:
        average: Mean of real images (c, H, W).
        drawn: Map of the sizes of the difference at each pixel (H, W), in standard deviations of chance, with p-values
            (H, W). Pixels with p-values above 0.05 stay clear. None if images are not aligned.
        areas: Boolean masks (H, W) to outline, that of the examples first.
        examples: Images (n, c, H, W) by the title of the row, with the same n, at most 6.
        shares: Shares of the distance that each fault explains, by its words; None without a distance, as for copies of
            real images.
        value_range: Values to show as black and as white.
        title: Finding.
        note: Text below the title.

    >>> images = np.zeros((2, 1, 4, 4))
    >>> where = np.eye(4, dtype=bool)
    >>> figure = diagnosis_figure(images[0], (9 * where, 1 - where), [where], {"real": images}, {"blurred": 0.7})
    >>> [text.get_text() for text in figure.axes[-1].get_legend().get_texts()]
    ['blurred: 70 %', 'not explained: 30 %']
    """
    rows = {name: to_tiles(to_array(images)[:6], value_range) for name, images in examples.items()}
    pasted = {name: paste(tiles, len(tiles)) for name, tiles in rows.items()}
    row_height = max((canvas.shape[0] for canvas, _ in pasted.values()), default=0) + 20
    wide = max((canvas.shape[1] for canvas, _ in pasted.values()), default=0)
    left = 18 if drawn is None else _MAP + 80
    body = max(0 if drawn is None else _MAP + 60, len(rows) * row_height)
    width, bottom = max(left + wide + 36, 640), 36 if shares is None else 84
    heading, below = _lines(title, int((width - 36) / 10.8)), _lines(note, int((width - 36) / 7.2))
    head = 14 + _TITLE * len(heading) + 17 * len(below) + 24
    figure = new_figure(width, body + bottom + head, "\n".join(heading), "\n".join(below))
    figure.texts[1].set_y(1 - (16 + _TITLE * len(heading)) / (body + bottom + head))
    if drawn is not None:
        sizes, p_values = drawn
        _draw_map(figure, bottom + body - _MAP, average, to_array(sizes), to_array(p_values), areas)
    top = bottom + body
    for name, (canvas, corners) in pasted.items():
        ax = add_axes(figure, left, top - row_height, canvas.shape[1], canvas.shape[0], bare=True)
        ax.imshow(canvas, interpolation="nearest")
        ax.set_title(printable(name, max(8, wide // 8)), y=1.0, loc="left", fontsize=10, color=INK, pad=3)
        if areas:
            _outline(ax, to_array(areas[0]).astype(int), corners, rows[name].shape[1])
        top -= row_height
    if shares is not None:
        _draw_shares(add_axes(figure, 18, 22, width - 36, 26), shares)
    return figure


def _lines(text: str, length: int) -> list[str]:
    """Break a text into at most four lines of a length; a p-value is not broken."""
    whole = re.sub(r"p ([=<≤]) ", "p\u00a0\\1\u00a0", printable(text, 4 * length))
    lines = textwrap.wrap(whole, length, max_lines=4, placeholder="…")
    return [line.replace("\u00a0", " ") for line in lines]


def _draw_map(
    figure: Figure, bottom: float, average: Array, sizes: NDArray[Any], p: NDArray[Any], areas: Sequence[Array]
) -> None:
    """Draw the map, and outline the areas."""
    ax = add_axes(figure, 18, bottom, _MAP, _MAP)
    ax.imshow(map_pixels(average, sizes, p), interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    label = "darker: farther from real images" if _differs(sizes, p).any() else "no difference beyond chance"
    ax.set_xlabel(label, fontsize=9, color=INK)
    for number, area in enumerate(areas):
        add_outline(ax, boundaries(to_array(area).astype(int), border=True), _MARK if not number else "white", 2, INK)


def map_pixels(average: Array, sizes: NDArray[Any], p: NDArray[Any]) -> NDArray[Any]:
    """Draw significant differences over the gray average image: RGB in [0, 1], [H, W, 3].

    Args:
        average: Mean of real images (c, H, W).
        sizes: Sizes of the difference at each pixel (H, W), in standard deviations of chance.
        p: P-values (H, W).
    """
    gray = to_array(average).mean(0)
    gray = (gray - gray.min()) / max(np.ptp(gray), 1e-12)
    below = np.repeat((0.35 + 0.6 * gray)[..., None], 3, axis=2)
    differs = _differs(sizes, p)
    norm = LogNorm(1, max(10.0, float(sizes[differs].max(initial=0))))
    laid = 0.28 * below + 0.72 * colormaps["YlOrRd"](norm(np.maximum(sizes, 1)))[..., :3]
    return np.where(differs[..., None], laid, below)


def _differs(sizes: NDArray[Any], p: NDArray[Any]) -> NDArray[Any]:
    return (p <= 0.05) & (sizes > 0)


def _outline(ax: Axes, mask: NDArray[Any], corners: Sequence[tuple[int, int]], size: int) -> None:
    """Outline an area on each tile of a row, unless it is the whole image."""
    if mask.all():
        return
    segments = (boundaries(mask, border=True) + 0.5) * (size / len(mask)) - 0.5
    on_tiles = np.concatenate([segments + np.array(corner) for corner in corners])
    add_outline(ax, on_tiles, _MARK, 1.2, "white")


def parts_of(shares: Mapping[str, float]) -> dict[str, float]:
    """Return the parts of a distance, in [0, 1]: those of faults, and the unexplained rest.

    Args:
        shares: Shares of the faults by their words.

    >>> parts_of({"blurred": 0.75})
    {'blurred': 0.75, 'not explained': 0.25}
    """
    parts = {name: max(share, 0.0) for name, share in shares.items()}
    explained = sum(parts.values())
    parts["not explained"] = max(0.0, 1 - explained)
    return {name: part / max(1.0, explained) for name, part in parts.items() if part >= 0.005}


def _draw_shares(ax: Axes, shares: Mapping[str, float]) -> None:
    """Draw a bar of the parts of the distance."""
    colors = {"not explained": "#D9D9D9"}
    blues, left = cycle(("#0072B2", "#56B4E9", "#009E73")), 0.0
    for name, part in parts_of(shares).items():
        label = f"{name}: {100 * part:.0f} %"
        ax.barh(0, part, left=left, color=colors.get(name) or next(blues), height=1, linewidth=0, label=label)
        left += part
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderpad": 0, "borderaxespad": 0.3}
    ax.legend(**place, ncols=5, frameon=False, fontsize=9.5, labelcolor=INK, handlelength=1, columnspacing=1.5)
    ax.set(xlim=(0, 1), ylim=(-0.5, 0.5), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
