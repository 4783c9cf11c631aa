# SPDX-License-Identifier: Apache-2.0
"""Other metrics beside CMS, as in Figure 3 of Gruber et al. 2024: one panel each over the same epochs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter

from genmonitor._formatting import format_cms
from genmonitor.plotting.style import INK, Band, Curve, add_axes, add_curve, cms_axis, epoch_axis, latest, new_figure

_PANEL, _GAP, _COLUMNS = 190, 80, 2
_STEEP = 20  # values that span more than this factor are read on a log scale


def beside_cms(
    epochs: Curve,
    image: Curve,
    baseline: Band | None,
    others: Mapping[str, Curve],
    deviations: Mapping[str, Curve] | None = None,
    bands: Mapping[str, Band] | None = None,
) -> Figure:
    """CMS of the image and other metrics of the same samples.

    Args:
        epochs: one per evaluation.
        image: CMS, one per evaluation.
        baseline: (low, median, high) of CMS; None for none.
        others: name to one value per evaluation, nan where none.
        deviations: standard deviations of those others that have one, drawn as a band around the curve.
        bands: (low, median, high) of what real images get, of those others that have it measured.

    >>> figure = beside_cms([1, 2], [0.9, 0.99], None, {"fid": [8.0, 3.0], "kid": [1.0, 0.5]}, {"kid": [0.1, 0.1]})
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['CMS, latest 0.9900', 'fid, latest 3', 'kid, latest 0.5']
    """
    rows = -(-(1 + len(others)) // _COLUMNS)
    known_bands = {"CMS": baseline, **(bands or {})}
    note = "the same samples for all; gray bars: what real images get; around a curve: one standard deviation"
    figure = new_figure(1000, 80 + (_PANEL + _GAP) * rows, "Other metrics beside CMS", note)
    places = [
        (70 + 490 * (i % _COLUMNS), 50 + (_PANEL + _GAP) * (rows - 1 - i // _COLUMNS)) for i in range(1 + len(others))
    ]
    axes = [add_axes(figure, left, bottom, 400, _PANEL) for left, bottom in places]
    cms_axis(axes[:1], [*image, *(baseline or ())])
    for ax, name, values in zip(axes, ["CMS", *others], [image, *others.values()], strict=True):
        epoch_axis(ax, epochs)
        if band := known_bands.get(name):
            ax.axhspan(band[0], band[2], color=INK, alpha=0.15, linewidth=0)
        add_curve(ax, epochs, values, INK, name)
        if name in (deviations or {}):
            mean, std = np.asarray(values), np.asarray((deviations or {})[name])
            ax.fill_between(epochs, mean - std, mean + std, color=INK, alpha=0.15, linewidth=0)
        number = format_cms(latest(values)) if ax is axes[0] else f"{latest(values):.4g}"
        ax.set_title(f"{name}, latest {number}", loc="left", fontsize=11, color=INK)
        ax.set_ylabel("")
        ax.spines[["top", "right"]].set_visible(False)
        if ax is axes[0]:
            continue
        known = [value for value in values if np.isfinite(value)]
        if known and 0 < min(known) * _STEEP < max(known):
            ax.set_yscale("log")
            ax.yaxis.set_minor_formatter(NullFormatter())
        elif known and max(known) >= 1e4:
            ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    return figure
