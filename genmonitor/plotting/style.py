# SPDX-License-Identifier: Apache-2.0
"""Canvas, regions of pixels and the axis of CMS, the same in all figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike, NDArray
from torch.nn.functional import avg_pool2d

INK, FAINT = "#222222", "#8A8A8A"
_DPI = 100
GAP = 8
"""Pixels between two images."""
# Six colors of Okabe and Ito, then six found by search: twelve colors with the largest distances for normal,
# deuteranopic and protanopic vision. Figures also print the cluster's number, so color is never the only cue.
_PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"),
    *("#5B2A9D", "#4F5B00", "#C2188F", "#7A1F1F", "#8679FF", "#12306B"),
)

Array = ArrayLike | torch.Tensor
Drawing = Callable[[], Figure]  # draws a figure when it is called, perhaps in another process


def to_array(values: Array) -> NDArray[Any]:
    """Return a tensor (any device, any dtype), array or list as a NumPy array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.float() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


def cluster_name(label: int, names: Mapping[int, str] | None = None) -> str:
    """Return the readable name of a label: its own name, else ``cluster 3``, or ``constant`` for 0."""
    return (names or {}).get(label) or (f"cluster {label}" if label else "constant")


def cluster_color(label: int) -> str:
    """Return the color of a cluster, the same everywhere; label 0 (constant sites) is gray.

    >>> cluster_color(0), cluster_color(1), cluster_color(13) == cluster_color(1)
    ('#B4B4B4', '#0072B2', True)
    """
    return _PALETTE[(label - 1) % len(_PALETTE)] if label else "#B4B4B4"


def colorize(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels of any shape as RGB in [0, 1], with one more axis at the end."""
    table = [list(bytes.fromhex(cluster_color(label)[1:])) for label in range(int(labels.max(initial=0)) + 1)]
    return np.take(np.divide(table, 255), labels, axis=0)


def new_figure(width: float, height: float, title: str, note: str = "", color: str = INK) -> Figure:
    """Return a white figure of a size in pixels on its own Agg canvas, unknown to pyplot, with a headline."""
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    add_text(figure, 18, 14, title, color, va="top", fontsize=13, fontweight="bold")
    add_text(figure, 18, 38, note, "#555555", va="top", fontsize=10)
    return figure


def add_axes(figure: Figure, left: float, bottom: float, width: float, height: float, *, bare: bool = False) -> Axes:
    """Add axes at a position in pixels from the lower left corner, independent of the user's plot style.

    Axes that are bare, without ticks and frame, take a third of the time to draw.
    """
    full_width, full_height = figure.get_size_inches() * _DPI
    ax = figure.add_axes((left / full_width, bottom / full_height, width / full_width, height / full_height))
    if bare:
        ax.set_axis_off()
        return ax
    ax.set_facecolor("white")
    ax.grid(visible=False)
    ax.tick_params(color=FAINT, labelcolor=INK, labelsize=10)
    ax.spines[:].set_color(INK)
    return ax


def add_number(ax: Axes, x: float, y: float, number: int, size: float, halo: float = 0) -> None:
    """Add the number of a cluster in white, with a dark halo on an image."""
    text = ax.text(x, y, str(number), fontsize=size, fontweight="bold", color="white", ha="center")
    text.set_verticalalignment("center_baseline")
    text.set_path_effects([withStroke(linewidth=halo, foreground=INK)])


def boundaries(labels: NDArray[Any], border: bool = False) -> NDArray[Any]:
    """Return line segments (m, 2, 2) as (x, y) between pixels of different label; a straight run is one segment.

    ``border`` also closes regions with a non-zero label along the edge of the image.
    """
    if border:
        return boundaries(np.pad(labels, 1)) - 1
    return np.concatenate([_upright(labels), _upright(labels.T)[..., ::-1]])


def _upright(labels: NDArray[Any]) -> NDArray[Any]:
    differs = (labels[:, 1:] != labels[:, :-1]).astype(np.int8)
    ends = np.diff(np.pad(differs, ((1, 1), (0, 0))), axis=0).T
    runs = np.stack([np.argwhere(ends == 1), np.argwhere(ends == -1)], axis=1)
    return np.add(runs, [0.5, -0.5])


def add_outline(ax: Axes, segments: NDArray[Any], color: str, width: float, halo: str) -> None:
    """Add segments as one crisp line with a halo, visible on any image."""
    crisp: dict[str, Any] = {"capstyle": "projecting", "antialiased": False}
    for ink, size in ((halo, width + 1.5), (color, width)):
        ax.add_collection(LineCollection(list(segments), colors=ink, linewidths=size, **crisp))


def show_regions(ax: Axes, labels: NDArray[Any], image: NDArray[Any] | None = None) -> None:
    """Show the numbered label map in its colors, over a gray ``image`` (H, W) in [0, 1] if given."""
    if image is None:
        ax.imshow(colorize(labels), interpolation="nearest")
        ax.add_collection(LineCollection(list(boundaries(labels)), colors="white", linewidths=1))
    else:
        # never black, so that a dark part of the image shows the hue of its cluster
        ax.imshow(0.4 * colorize(labels) + 0.12 + 0.48 * image[..., None], interpolation="nearest")
        add_outline(ax, boundaries(labels), "white", 1.2, INK)
    ax.set(xticks=[], yticks=[])
    for label in np.unique(labels[labels > 0]):
        add_number(ax, *inmost(labels == label), label, size=12, halo=2.5)


def inmost(mask: NDArray[Any]) -> tuple[float, float]:
    """Return the point (x, y) farthest inside a region, near its middle for ties."""
    from scipy.ndimage import distance_transform_edt

    depth = distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1]
    places = np.argwhere(depth >= depth.max() - 0.5)
    row, column = places[np.abs(places - places.mean(0)).sum(1).argmin()]
    return float(column), float(row)


def add_region_legend(figure: Figure, labels: NDArray[Any], left: float, top: float, of: Mapping[int, str]) -> None:
    """Add one line per region with its color, name and size, at a position in figure fractions."""
    sizes = np.bincount(labels.ravel())
    numbered = {label: f"{label}: {name}" for label, name in of.items()}  # the map shows numbers
    names = {label: f"{cluster_name(label, numbered)} ({size} px)" for label, size in enumerate(sizes) if size}
    names.update({0: names.pop(0)} if 0 in names else {})
    handles = [Patch(facecolor=cluster_color(label), label=name) for label, name in names.items()]
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (left, top)}
    figure.legend(handles=handles, **place, frameon=False, fontsize=11, labelcolor=INK)


def thumbnails(images: NDArray[Any], value_range: tuple[float, float]) -> NDArray[Any]:
    """Return images as RGB (n, H', W', 3) in [0, 1], averaged by an integer factor if larger than 128 pixels."""
    low, high = value_range
    images = np.clip((images.astype(np.float32) - low) / ((high - low) or 1.0), 0, 1)
    if images.shape[1] != 3:
        images = images.mean(1, keepdims=True).repeat(3, axis=1)
    step = -(-max(images.shape[2:]) // 128)
    return avg_pool2d(torch.from_numpy(images), step).permute(0, 2, 3, 1).numpy()


def to_tiles(images: NDArray[Any], value_range: tuple[float, float]) -> NDArray[Any]:
    """Return images as RGB (n, H', W', 3) in [0, 1], enlarged or averaged by an integer factor to about 100 pixels."""
    small = thumbnails(images, value_range)
    grow = -(-96 // max(small.shape[1:3]))
    return small.repeat(grow, axis=1).repeat(grow, axis=2)


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


def printable(text: str, length: int) -> str:
    """Return one line of limited length, with a question mark for characters missing in the font."""
    font = get_font(findfont(FontProperties()))
    line = "".join(c if font.get_char_index(ord(c)) else "?" for c in " ".join(text.split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"


def add_text(figure: Figure, left: float, top: float, text: str, color: str = INK, **look: Any) -> None:
    """Add literal text at a position in pixels from the upper left corner."""
    width, height = figure.get_size_inches() * _DPI
    figure.text(left / width, 1 - top / height, text, color=color, parse_math=False, **{"fontsize": 11, **look})


def add_picture(figure: Figure, left: float, top: float, picture: NDArray[Any]) -> Axes:
    """Add a picture (h, w, 3), pixel by pixel, at a position in pixels from the upper left corner."""
    bottom = figure.get_size_inches()[1] * _DPI - top - picture.shape[0]
    ax = add_axes(figure, left, bottom, picture.shape[1], picture.shape[0])
    ax.imshow(picture, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    return ax
