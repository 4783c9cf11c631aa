# SPDX-License-Identifier: Apache-2.0
"""Charts, map of regions and tables of values of the page, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from genmonitor._formatting import LEAST_P
from genmonitor.evaluation.results import MOMENT, Record
from genmonitor.findings.finding import verdict_of
from genmonitor.findings.values import ValueSpec, grouped_by_chart, lookup
from genmonitor.functional.permutation import LEVEL
from genmonitor.plotting.style import cluster_color, inmost
from genmonitor.report.run import MonitorRun, Note


def charts_of(run: MonitorRun) -> list[dict[str, Any]]:
    """Return the charts of a monitor, first that of the value that orders its evaluations; others as declared.

    The result of a command has only the first chart, of the regions if there are any, since one evaluation has no
    curves.
    """
    if run.compared and run.partition is None:
        return []
    keys = _keys(run.records)
    declared = [spec for key, spec in run.values.items() if key in keys]
    grouped = grouped_by_chart([*declared, *(ValueSpec(key) for key in keys if key not in run.values)])
    charts = sorted(grouped.items(), key=lambda x: run.fixed.get("best_key") not in {spec.key for spec in x[1]})
    alerts = [note for note in run.notes if note.alert is not None]
    return [
        _chart(run, title, specs, alerts if number == 0 else [])
        for number, (title, specs) in enumerate(charts[: 1 if run.compared else None])
    ]


def _keys(records: Sequence[Record]) -> list[str]:
    """Return the keys of the values of all evaluations, some of which may be missing in one."""
    return [key for key in dict.fromkeys(key for record in reversed(records) for key in record) if key not in MOMENT]


def _chart(run: MonitorRun, title: str, specs: Sequence[ValueSpec], alerts: Sequence[Note]) -> dict[str, Any]:
    by, x = _axis(run.records)
    marks = [(getattr(alert, by, None), alert.text) for alert in alerts]
    scales = {spec.scale for spec in specs}
    scale = scales.pop() if len(scales) == 1 else "linear"
    return {
        "title": title,
        "note": specs[0].about if len({spec.about for spec in specs}) == 1 else "",
        "kind": "stack" if scale == "share" else "lines",
        "scale": {"p": "log", "share": "linear"}.get(scale, scale),
        "rule": {"p": LEVEL}.get(scale, 1.0 if specs[0].unit == "×" and specs[0].better else None),  # as good as real
        "by": "" if run.compared else by,
        "x": x,
        "steps": [record.get("step") for record in run.records],
        "alerts": [{"x": x, "text": text} for x, text in marks if x is not None],
        "series": _all_series(run, specs),
    }


def _axis(records: Sequence[Record]) -> tuple[str, list[float]]:
    """Return the unit of the x-axis, and the position of each evaluation.

    Several evaluations in an epoch would be on one vertical line, so they are drawn by step.
    """
    for by in ("epoch", "step"):
        x = [record[by] for record in records if by in record]
        if len(x) == len(records) and all(before < after for before, after in pairwise(x)):
            return by, x
    return "evaluation", [float(number) for number in range(1, len(records) + 1)]


def _all_series(run: MonitorRun, specs: Sequence[ValueSpec]) -> list[dict[str, Any]]:
    labels = {} if run.partition is None else run.partition.regions()
    titles, drawn, least = [spec.title for spec in specs], set(), {"p": LEAST_P}
    series: list[dict[str, Any]] = []
    for number, spec in enumerate(specs, start=1):
        label = labels.get(spec.region or "")
        of_image = label is None and spec.region is not None
        values = [record.get(spec.key) for record in run.records]
        # the title of the chart names the values of several places
        name = spec.title if spec.region is None or titles.count(spec.title) == 1 else spec.region.replace("_", " ")
        series.append(
            {
                "name": spec.key,
                "label": name,
                "region": label,
                "color": "var(--ink)" if of_image else cluster_color(number if label is None else label),
                # a second value of one place, such as the product of the regions and the image
                "line": "dashed" if spec.region in drawn else "",
                "values": [None if x is None else float(f"{max(x, least.get(spec.scale, x)):.7g}") for x in values],
                "band": run.baseline.get(spec.key),
            }
        )
        drawn |= {spec.region} - {None}
    return series


def map_of(run: MonitorRun) -> dict[str, Any] | None:
    """Return the map of regions as paths with positions of their numbers, None without a partition."""
    if run.partition is None:
        return None
    labels = run.partition.labels
    h, w = labels.shape
    regions = [
        {
            "region": label,
            "color": cluster_color(label),
            "name": name.replace("_", " ") + (f" ({run.partition.location(label)})" if label else ""),
            "path": _path(labels == label),
            "at": inmost((labels == label).numpy()),
        }
        for name, label in run.partition.regions().items()
    ]
    return {"height": h, "width": w, "regions": regions}


def _path(mask: Tensor) -> str:
    """Return a mask [h, w] as an SVG path of one rectangle per run of sites in a row."""
    edges = np.diff(np.pad(mask.numpy().astype(int), ((0, 0), (1, 1))))
    runs = np.concatenate([np.argwhere(edges == 1), np.argwhere(edges == -1)[:, 1:]], axis=1).tolist()
    return "".join(f"M{start} {y}h{end - start}v1h{start - end}z" for y, start, end in runs)


def region_rows(run: MonitorRun) -> list[dict[str, Any]]:
    """Return the results of the last evaluation for each region, in the order of the findings, by column."""
    if run.partition is None:
        return []
    regions, sizes, rows = run.partition.regions(), run.partition.sizes(), []
    order = [x.area.region for x in run.findings if x.area.region in regions]
    for name in dict.fromkeys([*order, *regions]):
        of = [spec for spec in run.values.values() if spec.region == name and spec.column is not None]
        rows.append(
            {
                "region": regions[name],
                "name": name.replace("_", " "),
                "color": cluster_color(regions[name]),
                "where": run.partition.location(regions[name]),
                "sites": sizes[regions[name]],
                "verdict": verdict_of(run.findings, name),
                "stability": run.fixed.get("stability", {}).get(f"cluster_{regions[name]}"),
                "cells": {spec.column: _cell(run, spec) for spec in of},
            }
        )
    return rows


def _cell(run: MonitorRun, spec: ValueSpec) -> dict[str, str]:
    """Return the last value with its baseline, if any; that of a cosine is at most 1."""
    value = run.records[-1].get(spec.key)
    low, _, high = run.baseline.get(spec.key, (None, None, None))
    high = min(high, 1.0) if spec.scale == "cms" and high is not None else high
    baseline = "" if low is None or high is None else f"{spec.format(low)} to {spec.format(high)}"
    return {"value": "" if value is None else spec.format(value), "baseline": baseline}


def value_rows(run: MonitorRun) -> list[dict[str, Any]]:
    """Return the values of whole images in a comparison of two sets, with baselines and meanings."""
    labels = {} if run.partition is None else run.partition.regions()
    specs = [lookup(run.values, key) for key in _keys(run.records[-1:])]
    return [
        {"name": spec.key, "about": spec.about, **_cell(run, spec)}
        for spec in specs
        if spec.region not in labels and spec.baseline_of is None and spec.repeatable
    ]
