# SPDX-License-Identifier: Apache-2.0
"""The figure of prompts' reusability: how alike the closest pair among k images is, and when that becomes high."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from genmonitor.functional.w1kp import ReusabilityCurve
from genmonitor.plotting.style import FAINT, INK, add_axes, cluster_color, new_figure


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
    ax.grid(axis="y", color="#E8E8E8", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="lower right", fontsize=11, frameon=False, labelcolor=INK)
    return figure


def _good_for(curve: ReusabilityCurve) -> str:
    """Say how many images, with the interval: "12 (10 to 15)", or "50 or more" where the curve does not get there."""

    def bound(k: int) -> str:
        return f"{k}{' or more' if k == curve.largest_k else ''}"

    low, high = curve.interval
    return bound(low) if low == high else f"{bound(curve.reusability)} ({low} to {bound(high)})"
