# SPDX-License-Identifier: Apache-2.0
"""Draw the curves of a run for a paper: every region's CMS over the epochs, with its baseline and the map.

python examples/curves.py runs/dcgan-digits/version_0 [--out curves.png]

The report has the same curves to point at.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator
from numpy.typing import NDArray

from genmonitor._formatting import RESOLUTION, Band
from genmonitor.evaluation.results import curve
from genmonitor.plotting.style import (
    INK,
    Array,
    add_axes,
    add_number,
    cluster_color,
    cluster_name,
    new_figure,
    show_regions,
    to_array,
)
from genmonitor.report.run import MonitorRun, find_folder, read_run

Names = Mapping[int, str]
_NO_NAMES: Names = {}


def curves_of(run: MonitorRun) -> Figure:
    """Return the figure of a monitor's run.

    Raises:
        ValueError: if it is of a monitor without regions.
    """
    if run.partition is None:
        raise ValueError(f"Expected the run of a monitor of regions, but {run.prefix} has none.")
    names = run.partition.regions()
    curves = {label: curve(list(run.records), name) for name, label in names.items()}
    bands = {label: run.baseline[name] for name, label in names.items() if name in run.baseline}
    first = next((x.text for x in run.findings if x.area.region is not None), "")
    epochs, labels = curve(list(run.records), "epoch"), run.partition.pixel_labels()
    return cluster_curves(epochs, curves, bands, labels, first, run.partition.given_names())


def cluster_curves(
    epochs: Sequence[float],
    curves: Mapping[int, Sequence[float]],
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


def reaches_baseline(value: float, lowest: float) -> bool:
    """Return True if a CMS reaches the lower end of its baseline, as far as float32 can tell; nan does not.

    Example:
        >>> reaches_baseline(0.98, 0.97), reaches_baseline(1 - 1e-8, 1.0), reaches_baseline(float("nan"), 0.97)
        (True, True, False)
    """
    return value >= min(lowest, 1 - RESOLUTION)


def cms_axis(axes: Iterable[Axes], values: Iterable[float]) -> None:
    """Give ``axes`` one y-axis for CMS: distance to 1 on a log scale, so 0.9, 0.99 and 0.999 are equal steps.

    The range covers the finite ``values``, at least a decade. What float32 cannot tell from 1 is drawn at the
    top, which is then labelled 1.
    """
    drawn = np.array([value for value in values if np.isfinite(value)] or [0.9])
    worst = min(max(1 - drawn.min(), 10 * RESOLUTION) * 1.5, 2.0)
    best = min((1 - drawn[drawn < 1 - RESOLUTION].max(initial=-1)) / 1.5, worst / 10)
    ticks = [1 - step * 10.0**power for power in range(0, -7, -1) for step in (1, 0.5, 0.2)]
    ticks = [tick for tick in ticks if best * 1.3 < 1 - tick < worst]
    if len(ticks) > 9:
        ticks = [tick for tick in ticks if tick == 0.5 or not round(np.log10(1 - tick), 6) % 1]
    names = [f"{tick:.6g}" for tick in ticks]
    if drawn.max() > 1 - best:
        ticks, names = [*ticks, 1 - best], [*names, "1"]

    def place(cms: NDArray[Any]) -> NDArray[Any]:
        return -np.log10(np.maximum(1 - cms, best))

    def cms_at(place: NDArray[Any]) -> NDArray[Any]:
        return 1 - 10.0 ** -np.asarray(place)

    for ax in axes:
        ax.set_yscale("function", functions=(place, cms_at))
        ax.set_ylim(1 - worst, 1 - best)
        ax.set_yticks(ticks, names)
        ax.set_yticks([], minor=True)
        ax.grid(axis="y", color="#E8E8E8", linewidth=0.8)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_axisbelow(True)


def epoch_axis(ax: Axes, epochs: Sequence[float]) -> None:
    """Whole epochs on the x-axis; a single evaluation stands in the middle."""
    margin = 0.02 * (max(epochs) - min(epochs)) or 1.0
    ax.set_xlim(min(epochs) - margin, max(epochs) + margin)
    several = MaxNLocator(nbins=8, integer=True)
    ax.xaxis.set_major_locator(several if len(set(epochs)) > 1 else FixedLocator(epochs))
    ax.set_xlabel("epoch", fontsize=11, color=INK)
    ax.set_ylabel("CMS (higher is better)", fontsize=11, color=INK)


def add_curve(
    ax: Axes, epochs: Sequence[float], values: Sequence[float], color: str, label: str, low: float = -np.inf
) -> None:
    """One curve with gaps at nan, its points hollow below ``low``, the baseline's lower end."""
    ax.plot(epochs, values, color=color, linewidth=2, label=label, clip_on=False)
    if len(epochs) <= 50:
        fill = [color if reaches_baseline(value, low) else "white" for value in values]
        size = 70 if len(epochs) == 1 else 18
        ax.scatter(epochs, values, size, fill, edgecolors=color, linewidths=1.2, zorder=2.5, clip_on=False)


def add_target(ax: Axes, place: int, number: int, value: float, band: Band | None) -> None:
    """A region's latest value as a disc (numbered: clusters), its baseline as a bar, and the way still to go."""
    color = cluster_color(number)
    if band is not None:
        low, median, high = band
        ax.bar(place, high - low, bottom=low, width=0.8, color=color, alpha=0.4, linewidth=0)
        ax.plot((place - 0.4, place + 0.4), (median, median), color=color, linewidth=2, clip_on=False)
        ax.plot((place, place), (value, median), color=color, linewidth=2)
    if np.isfinite(value):
        ax.plot(place, value, "o", color=color, markersize=13, markeredgecolor="white", clip_on=False)
        if number:
            add_number(ax, place, value, number, size=8)


def latest(values: Sequence[float]) -> float:
    """The last value that is not nan; nan where there is none."""
    return next((value for value in reversed(values) if np.isfinite(value)), float("nan"))


def main() -> None:
    """Draw the curves of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="its folder")
    parser.add_argument("--prefix", default="cms", help="of the monitor")
    parser.add_argument("--out", type=Path, default=Path("curves.png"))
    args = parser.parse_args()
    run = next(x for x in read_run(find_folder(args.run)).monitors if x.prefix == args.prefix)
    curves_of(run).savefig(args.out)
    print(args.out)


if __name__ == "__main__":
    main()
