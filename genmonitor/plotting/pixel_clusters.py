# SPDX-License-Identifier: Apache-2.0
"""The monitor's figures: matplotlib `Figure` objects on the Agg canvas, never pyplot.

A cluster has the same color and number in every figure; label 0, the constant sites, is gray. Images, labels
and matrices may be tensors on any device, numpy arrays or lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from genmonitor._formatting import Band
from genmonitor.plotting.style import (
    GAP,
    INK,
    Array,
    Curve,
    add_axes,
    add_curve,
    add_number,
    add_region_legend,
    add_target,
    cluster_color,
    cluster_name,
    cms_axis,
    colorize,
    epoch_axis,
    latest,
    new_figure,
    paste,
    printable,
    region_alone,
    show_regions,
    to_array,
    to_tiles,
)

Names = Mapping[int, str]
_NO_NAMES: Names = {}
COLUMNS, ROWS = 4, 4
_MARGIN, _BETWEEN, _HEAD = 18, 36, 92


def cluster_map(labels: Array, names: Names = _NO_NAMES) -> Figure:
    """The clusters as a map with the size of each.

    Args:
        labels: (H, W) int at pixel resolution, 0 for constant sites, 1..C for clusters.
        names: of regions that have one, by label.

    >>> figure = cluster_map([[0, 1], [1, 2]])
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['cluster 1 (2 px)', 'cluster 2 (1 px)', 'constant (1 px)']
    """
    return _map_figure(to_array(labels), None, "Clusters of pixels", names)


def cluster_overlay(labels: Array, image: Array, names: Names = _NO_NAMES) -> Figure:
    """The map laid over an average real image, so that one sees which part of the image a cluster is.

    Args:
        labels: (H, W) int at pixel resolution.
        image: (c, H, W) in any range; its contrast is stretched, its colors become gray.
        names: of regions that have one, by label.

    Raises:
        ValueError: If the two differ in height or width.
    """
    labels, image = to_array(labels), to_array(image)
    if image.shape[1:] != labels.shape:
        raise ValueError(
            f"Expected `image` of shape [c, H, W] as high and wide as `labels`, but got {list(image.shape)} "
            f"with labels {list(labels.shape)}. Scale the labels to the image's pixels."
        )
    gray = image.mean(0)
    gray = (gray - gray.min()) / max(np.ptp(gray), 1e-12)
    return _map_figure(labels, gray, "Clusters over the average real image", names)


def _map_figure(labels: NDArray[Any], image: NDArray[Any] | None, title: str, names: Names) -> Figure:
    figure = new_figure(760, 600, title)
    show_regions(add_axes(figure, 18, 18, 520, 520), labels, image)
    add_region_legend(figure, labels, 545 / 760, 540 / 600, names)
    return figure


def cka_matrix(matrix: Array, labels: Array) -> Figure:
    """CKA between all pairs of sites, ordered by cluster: a bright block is a cluster that holds together.

    Args:
        matrix: (d, d) in [0, 1]; averaged down for drawing where d is large.
        labels: the d sites' labels, of any shape; constant sites are left out.

    Raises:
        ValueError: If there are not d labels, or none above 0.
    """
    matrix, labels = to_array(matrix), to_array(labels).ravel()
    order = np.argsort(labels, kind="stable")[np.count_nonzero(labels == 0) :]
    d = len(order)
    if matrix.shape != (labels.size, labels.size) or d == 0:
        raise ValueError(
            f"Expected `matrix` of shape [d, d] and `labels` of its d sites, some above 0, but got "
            f"{list(matrix.shape)} and {labels.size} labels, {d} above 0. Pass the partition made from it."
        )
    size = 560
    starts = np.arange(0, d, -(-d // size))
    counts = np.diff(starts, append=d)
    rows = np.add.reduceat(matrix[order], starts, axis=0)[:, order]
    mean = np.add.reduceat(rows, starts, axis=1) / np.outer(counts, counts)

    title, note = "CKA between sites, ordered by cluster", "bright blocks: sites that vary together"
    figure = new_figure(760, 680, title, note)
    ax = add_axes(figure, 58, 24, size, size)
    picture = ax.imshow(mean, norm=PowerNorm(0.5, 0, 1), cmap="magma", extent=(0, d, d, 0))
    ordered = labels[order]
    edges = (np.flatnonzero(np.diff(ordered)) + 1).tolist()
    ax.hlines(edges, 0, d, colors="white", linewidth=1)
    ax.vlines(edges, 0, d, colors="white", linewidth=1)
    side, above = add_axes(figure, 34, 24, 20, size), add_axes(figure, 58, 588, size, 20)
    side.imshow(colorize(ordered)[:, None], aspect="auto", interpolation="nearest", extent=(0, 1, d, 0))
    above.imshow(colorize(ordered)[None], aspect="auto", interpolation="nearest", extent=(0, d, 1, 0))
    for start, end in zip([0, *edges], [*edges, d], strict=True):
        add_number(side, 0.5, (start + end) / 2, ordered[start], size=10)
        add_number(above, (start + end) / 2, 0.5, ordered[start], size=10)
    for axes in (ax, side, above):
        axes.set(xticks=[], yticks=[])
    bar = figure.colorbar(picture, cax=add_axes(figure, 640, 24, 20, size), ticks=np.linspace(0, 1, 6))
    bar.set_label("CKA (square-root scale)", fontsize=11, color=INK)
    bar.outline.set_edgecolor(INK)
    return figure


def cluster_curves(
    epochs: Curve,
    curves: Mapping[int, Curve],
    baseline: Mapping[int, Band],
    labels: Array,
    note: str = "",
    names: Names = _NO_NAMES,
) -> Figure:
    """The main view: every cluster's CMS over the epochs, its baseline and the map, in the same colors.

    Points are filled where a region reaches its baseline. The strip in the middle puts the latest value (a disc,
    numbered for clusters) next to its baseline (a bar).

    Args:
        epochs: one per evaluation.
        curves: label 1..C, and perhaps 0 for constant sites, to one CMS per evaluation, nan where none.
        baseline: label to (low, median, high); may lack some or be empty.
        labels: (H, W) int at pixel resolution.
        note: what to say below the title.
        names: of regions that have one, by label.
    """
    figure = new_figure(1000, 500, f"CMS per cluster, epoch {epochs[-1]:g}", note)

    ax, strip = add_axes(figure, 92, 52, 426, 360), add_axes(figure, 526, 52, 206, 360)
    cms_axis((ax, strip), [value for label in curves for value in (*curves[label], *baseline.get(label, ()))])
    epoch_axis(ax, epochs)
    drawn = [label for label in (*sorted(curves.keys() - {0}), 0) if label in curves]
    for place, label in enumerate(drawn):
        values, band = curves[label], baseline.get(label)
        add_curve(ax, epochs, values, cluster_color(label), cluster_name(label, names), band[0] if band else -np.inf)
        add_target(strip, place, label, latest(values), band)
    strip.set_facecolor("#F6F6F6")
    strip.set(xlim=(-0.8, len(drawn) - 0.2), xticks=[])
    strip.tick_params(left=False, labelleft=False)
    strip.spines["left"].set_visible(False)
    show_regions(add_axes(figure, 742, 172, 240, 240), to_array(labels))
    _add_key(figure, bool(baseline), 0 in curves)
    return figure


def _add_key(figure: Figure, with_baseline: bool, with_constant: bool) -> None:
    """Legend of the marks, below the map, where no curve and no tick is in the way."""
    handles: list[Any] = [Line2D([], [], marker="o", markersize=10, linestyle="", color=INK, label="latest")]
    if with_baseline:
        handles.append(Patch(color=INK, alpha=0.4, linewidth=0, label="baseline: real images"))
    if with_constant:
        handles.append(Line2D([], [], linewidth=2, color=cluster_color(0), label="constant pixels"))
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.74, 0.31), "borderpad": 0}
    figure.legend(handles=handles, **place, fontsize=10, frameon=False, handlelength=1, labelcolor=INK)


def sample_grid(
    images: Array,
    labels: Array,
    worst: int | None = None,
    value_range: tuple[float, float] = (0.0, 1.0),
    p: str = "",
    captions: Sequence[str] = (),
    names: Names = _NO_NAMES,
) -> Figure:
    """Generated samples as they are; above them the region that differs most, alone, of those of the first row.

    Args:
        images: (n, c, H, W); the first 64 or fewer are shown, as many as stay readable.
        labels: (H, W) int at pixel resolution.
        worst: the region's label, 0 for the constant sites; None shows none alone.
        value_range: what to show as black and as white.
        p: what to say of the region's p-value in the title.
        captions: of the images, such as their classes; empty for none.
        names: of regions that have one, by label.
    """
    tiles, labels = to_tiles(to_array(images)[:64], value_range), to_array(labels)
    height, width = tiles.shape[1:3]
    columns = int(min(np.ceil(np.sqrt(len(tiles))), max(1, 840 // (width + GAP))))
    tiles = tiles[: columns * max(1, 840 // (height + GAP))]
    line = 18 if captions else 0  # pixels
    canvas, corners = paste(np.pad(tiles, ((0, 0), (0, line), (0, 0), (0, 0)), constant_values=1), columns)

    title, note, color = f"{len(corners)} generated samples", "", INK
    if worst is not None:
        title = f"{cluster_name(worst, names)} differs from real images" + (f", {p}" if p else "")
        note = f"first row: {cluster_name(worst, names)} alone, of the samples below it"
        color = cluster_color(worst) if worst else INK
        alone, _ = paste(region_alone(tiles[:columns], labels, worst), columns)
        canvas = np.concatenate([np.pad(alone, ((0, 2 * GAP), (0, 0), (0, 0)), constant_values=1), canvas])
        corners = [(x, y + height + 2 * GAP) for x, y in corners]
    head = 74 if note else 52
    figure = new_figure(max(canvas.shape[1] + 36, 480), canvas.shape[0] + 14 + head, title, note, color)
    ax = add_axes(figure, 18, 14, canvas.shape[1], canvas.shape[0])
    ax.imshow(canvas, interpolation="nearest")
    ax.set_axis_off()
    for (x, y), caption in zip(corners, captions, strict=False):
        text = printable(caption, max(1, width // 7))
        place: dict[str, Any] = {"ha": "center", "va": "center", "parse_math": False}
        ax.text(x + width / 2, y + height + line / 2, text, fontsize=9, color=INK, **place)
    return figure


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
