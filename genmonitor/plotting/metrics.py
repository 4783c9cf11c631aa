# SPDX-License-Identifier: Apache-2.0
"""Figures of metrics: `CosineMeanSimilarity.plot` and `W1KPScore.plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from genmonitor._formatting import Band, format_cms
from genmonitor.functional.w1kp import ReusabilityCurve
from genmonitor.partition import PixelPartition
from genmonitor.plotting.style import (
    FAINT,
    INK,
    add_axes,
    add_curve,
    add_target,
    cluster_color,
    cms_axis,
    new_figure,
    open_axes,
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
    labels: dict[str, int | None] = {"image": None, **partition.regions()}
    for place, name in enumerate(names):
        if several:
            _add_curve(ax, name, labels[name], curves[name], baseline.get(name))
        else:
            add_target(ax, place, labels[name] or 0, curves[name][0], baseline.get(name), _color(labels[name]))
    if several:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        ax.set_xlabel("value", fontsize=11, color=INK)
        ax.legend(loc="lower left", bbox_to_anchor=(1.01, 0), fontsize=10, frameon=False, labelcolor=INK)
    else:
        names_below = [f"{_called(name)}\n{format_cms(curves[name][0])}" for name in labels]
        ax.set_xticks(range(len(names)), names_below, fontsize=9 if len(names) <= 7 else 7)
        ax.set_xlim(-0.6, len(names) - 0.4)
    show_regions(add_axes(figure, 760, 150, 230, 230), to_array(partition.pixel_labels()))
    return figure


def _called(name: str) -> str:
    return name.replace("_", " ")


def _color(label: int | None) -> str:
    return INK if label is None else cluster_color(label)


def _add_curve(ax: Axes, name: str, label: int | None, values: Sequence[float], band: Band | None) -> None:
    low = band[0] if band else float("-inf")
    style = "--" if label == 0 else "-"
    add_curve(ax, range(1, len(values) + 1), values, _color(label), _called(name), low, style)


def reusability_figure(curves: Mapping[str, ReusabilityCurve]) -> Figure:
    """Draw curves of reusability with their bands, the cut-off, and where each crosses it.

    Args:
        curves: by name; the name of a single one may be empty. At least one, of one cut-off.
    """
    first = next(iter(curves.values()))
    title = "Images that one prompt is good for" + (f": {_good_for(first)}" if len(curves) == 1 else "")
    note = "Expected similarity of the closest pair among k images of a prompt: mean over prompts, 95 % band."
    figure = new_figure(760, 470, title, note)
    ax = add_axes(figure, 64, 56, 672, 330)
    largest = max(curve.largest_k for curve in curves.values())
    for place, (name, curve) in enumerate(curves.items()):
        color, k = cluster_color(place + 1), range(2, curve.largest_k + 1)
        ax.fill_between(k, curve.low, curve.high, color=color, alpha=0.2, linewidth=0)
        label = f"{name}: {_good_for(curve)}" if name else f"{curve.prompts} prompts"
        ax.plot(k, curve.mean, "-" if len(k) > 1 else "o", color=color, linewidth=2, label=label)
        if 1 < curve.reusability < curve.largest_k:
            ax.axvline(curve.reusability, color=color, linewidth=1, linestyle=":")
    ax.axhline(first.cutoff, color=FAINT, linewidth=1, linestyle="--", label=f"high similarity: {first.cutoff:.3g}")
    if largest > 30:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if str(value)[0] in "25" else ""))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    ax.set_xlim(2, max(3, largest))
    ax.set_ylim(0, 1)
    ax.set_xlabel("k, images of the prompt", fontsize=11, color=INK)
    ax.set_ylabel("W1KP_k", fontsize=11, color=INK)
    open_axes(ax)
    ax.legend(loc="lower right", fontsize=11, frameon=False, labelcolor=INK)
    return figure


def _good_for(curve: ReusabilityCurve) -> str:
    """Say how many images, with the interval: "12 (10 to 15)", or "50 or more" where the curve does not get there."""

    def bound(k: int) -> str:
        return f"{k}{' or more' if k == curve.largest_k else ''}"

    low, high = curve.interval
    return bound(low) if low == high else f"{bound(curve.reusability)} ({low} to {bound(high)})"
