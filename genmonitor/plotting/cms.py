# SPDX-License-Identifier: Apache-2.0
"""The figure of a CosineMeanSimilarity: image and regions, once or in order, beside the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from genmonitor._formatting import format_cms
from genmonitor.partition import PixelPartition
from genmonitor.plotting.style import (
    INK,
    Band,
    add_axes,
    add_curve,
    add_target,
    cluster_color,
    cluster_name,
    cms_axis,
    new_figure,
    show_regions,
    to_array,
)


def cms_figure(values: Sequence[Mapping[str, Any]], partition: PixelPartition, baseline: Mapping[str, Band]) -> Figure:
    """Draw CMS of image and regions: of one value a column each, of several a curve each.

    Args:
        values: what `CosineMeanSimilarity.compute` returned, one or more.
        partition: the regions.
        baseline: what real images get, (low, median, high) by name; may lack names or be empty.
    """
    names = ["image", *partition.regions()]
    curves = {name: [float(to_array(value[name])) for value in values] for name in names}
    several = len(values) > 1
    mark = "hollow points: worse than real images" if several else "bars: what real images get"
    note = f"higher is better; {mark}" if baseline else "higher is better"
    figure = new_figure(1000, 460, "CMS of the image and of each region", note)
    ax = add_axes(figure, 92, 60, 540, 320)
    cms_axis((ax,), [x for name in names for x in (*curves[name], *baseline.get(name, ()))])
    ax.set_ylabel("CMS", fontsize=11, color=INK)
    labels = {"image": None, **partition.regions()}
    for place, name in enumerate(names):
        if several:
            _add_curve(ax, labels[name], curves[name], baseline.get(name))
        else:
            add_target(ax, place, labels[name] or 0, curves[name][0], baseline.get(name), _color(labels[name]))
    if several:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        ax.set_xlabel("value", fontsize=11, color=INK)
        ax.legend(loc="lower left", bbox_to_anchor=(1.01, 0), fontsize=10, frameon=False, labelcolor=INK)
    else:
        said = [f"{_called(label)}\n{format_cms(curves[name][0])}" for name, label in labels.items()]
        ax.set_xticks(range(len(names)), said, fontsize=9 if len(names) <= 7 else 7)
        ax.set_xlim(-0.6, len(names) - 0.4)
    show_regions(add_axes(figure, 760, 150, 230, 230), to_array(partition.pixel_labels()))
    return figure


def _called(label: int | None) -> str:
    return "image" if label is None else cluster_name(label)


def _color(label: int | None) -> str:
    return INK if label is None else cluster_color(label)


def _add_curve(ax: Axes, label: int | None, values: Sequence[float], band: Band | None) -> None:
    low = band[0] if band else float("-inf")
    style = "--" if label == 0 else "-"
    add_curve(ax, range(1, len(values) + 1), values, _color(label), _called(label), low, style)
