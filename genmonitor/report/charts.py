# SPDX-License-Identifier: Apache-2.0
"""The charts, map of regions and tables of values on the report's page, as plain data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor

from genmonitor.evaluation.results import Record
from genmonitor.evaluation.text.disagreement import spoken
from genmonitor.evaluation.text.pixel_clusters import suffixed, verdicts
from genmonitor.evaluation.verdicts import LEVEL
from genmonitor.plotting.style import cluster_color, cluster_name, inmost
from genmonitor.report.run import MonitorRun
from genmonitor.report.sanitize import Note, as_record

_NOT_DRAWN = ("epoch", "step", "images_seen")
_BOUNDED = ("image", "product", "constant")
_OF_REGION = re.compile(
    r"(?:share_|error_ratio_|(?:p_|vs_best_)?cluster_)(\d+)|(?:share_|error_ratio_|p_|vs_best_)?constant"
)
_NO_BAND = (None, None, None)


def charts_of(run: MonitorRun) -> list[dict[str, Any]]:
    """Return the charts of a monitor: those that it asked for, then one for each value that is left.

    What a command measured of sets of outputs has only the first, of the regions if it has any: one evaluation gives no
    more to draw.
    """
    if run.compared and run.partition is None:
        return []
    values = _values(run.records)
    grouped = {title: [name for name in names if name in values] for title, names in run.charts.items()}
    shown = {name for names in grouped.values() for name in names} | set(_NOT_DRAWN)
    grouped |= {name: [name] for name in values if name not in shown and not name.startswith("baseline_")}
    charts = [(title, names) for title, names in grouped.items() if names]
    alerts = [note for note in run.notes if note.epoch is not None]
    return [
        _chart(run, title, names, alerts if number == 0 else [])
        for number, (title, names) in enumerate(charts[:1] if run.compared else charts)
    ]


def _values(records: Sequence[Record]) -> list[str]:
    """Name the values of all evaluations: one may lack what others have."""
    return list(dict.fromkeys(name for record in reversed(records) for name in record))


def _chart(run: MonitorRun, title: str, names: list[str], alerts: Sequence[Note]) -> dict[str, Any]:
    by, x = _axis(run.records)
    marks = [(getattr(alert, by, None), alert.text) for alert in alerts]
    return {
        "title": title,
        "note": run.about.get(names[0], "") if len(names) == 1 else "",
        "kind": "stack" if all(name.startswith("share_") for name in names) else "lines",
        "scale": _scale(names),
        "rule": LEVEL if all(name.startswith("p_") for name in names) else None,
        "bars": True,
        "by": "" if run.compared else by,
        "x": x,
        "steps": [record.get("step") for record in run.records],
        "joined": False,
        "alerts": [{"x": x, "text": text} for x, text in marks if x is not None],
        "series": [_series(run, name, number) for number, name in enumerate(names, start=1)],
    }


def _scale(names: Sequence[str]) -> str:
    """Return the axis of some values: what falls by orders of magnitude is flat on a linear one."""
    if all(name in _BOUNDED or name.startswith("cluster_") for name in names):
        return "cms"
    if all(name.startswith("vs_best_") for name in names):
        return "signed"
    return "log" if all(name.startswith(("p_", "error_ratio_")) for name in names) else "linear"


def _axis(records: Sequence[Record]) -> tuple[str, list[float]]:
    """Return what the x-axis counts, and where on it each evaluation is.

    Several evaluations in an epoch would fall on one vertical line, so they are drawn by step.
    """
    for by in ("epoch", "step"):
        x = [record[by] for record in records if by in record]
        if len(x) == len(records) and all(before < after for before, after in pairwise(x)):
            return by, x
    return "evaluation", [float(number) for number in range(1, len(records) + 1)]


def _series(run: MonitorRun, name: str, number: int) -> dict[str, Any]:
    return {
        "name": name,
        "label": spoken(name),
        "said": spoken(name),
        "region": region_of(name),
        "color": _color(name, number),
        "line": "dashed" if name == "product" else "",
        "run": 0,
        "values": [_rounded(record.get(name)) for record in run.records],
        "band": run.baseline.get(name),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.7g}")


def overlaid(first: list[dict[str, Any]], second: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the charts that two runs have in common, with the curves of both.

    Args:
        first: charts of a run, drawn full.
        second: of another, drawn dotted.
        names: of the runs.
    """
    others = {chart["title"]: chart for chart in second}
    return [
        _overlaid(chart, others[chart["title"]], names)
        for chart in first
        if chart["title"] in others and others[chart["title"]]["by"] == chart["by"]
    ]


def _overlaid(chart: dict[str, Any], other: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    x = sorted({*chart["x"], *other["x"]})
    steps = {here: step for of in (other, chart) for here, step in zip(of["x"], of["steps"], strict=True)}
    series = []
    for number, (of, name) in enumerate(zip((chart, other), names, strict=True)):
        for curve in of["series"]:
            at = dict(zip(of["x"], curve["values"], strict=True))
            line = {"line": "dotted", "band": None} if number else {}
            values = [at.get(here) for here in x]
            series.append(curve | line | {"label": f"{curve['label']}, {name}", "values": values, "run": number})
    drawn = {"kind": "lines", "bars": False, "joined": True, "alerts": []}
    return chart | drawn | {"x": x, "steps": [steps[here] for here in x], "series": series}


def region_of(name: str) -> int | None:
    """Return the label of the region that a value is of, None where it is of none.

    Example:
        >>> region_of("cluster_2"), region_of("share_constant"), region_of("p_cluster_3"), region_of("p_image")
        (2, 0, 3, None)
    """
    found = _OF_REGION.fullmatch(name)
    return None if found is None else int(found[1] or 0)


def _color(name: str, number: int) -> str:
    region = region_of(name)
    if region is None and (name in _BOUNDED or name.endswith("_image")):
        return "var(--ink)"
    return cluster_color(number if region is None else region)


def map_of(run: MonitorRun) -> dict[str, Any] | None:
    """Return the map of regions as a path for each and where its number stands, None without a partition."""
    if run.partition is None:
        return None
    labels = run.partition.labels
    h, w = labels.shape
    regions = [
        {
            "region": label,
            "color": cluster_color(label),
            "name": f"{cluster_name(label)} ({run.partition.location(label)})" if label else cluster_name(label),
            "path": _path(labels == label),
            "at": inmost((labels == label).numpy()),
        }
        for label in run.partition.regions().values()
    ]
    return {"height": h, "width": w, "regions": regions}


def _path(mask: Tensor) -> str:
    """Return a mask [h, w] as an SVG path of one rectangle per run of sites in a row."""
    parts = []
    for y, row in enumerate(mask.tolist()):
        start = None
        for x, inside in enumerate([*row, False]):
            if inside and start is None:
                start = x
            elif not inside and start is not None:
                parts.append(f"M{start} {y}h{x - start}v1h{start - x}z")
                start = None
    return "".join(parts)


def region_rows(run: MonitorRun) -> list[dict[str, Any]]:
    """Return what the last evaluation found in each region, those that differ most from real images first."""
    if run.partition is None:
        return []
    last, sizes, rows = run.records[-1], run.partition.sizes(), []
    tested = all(f"p_{name}" in last for name in run.partition.regions())
    said = verdicts(run.records, run.partition) if tested else {}
    stability = as_record(run.manifest.get("stability"))
    for name, label in run.partition.regions().items():
        low, high = _ends(run, name)
        best = _best(run.records, name)
        rows.append(
            {
                "region": label,
                "name": cluster_name(label),
                "color": cluster_color(label),
                "where": run.partition.location(label),
                "sites": sizes[label],
                "verdict": said.get(name, ""),
                "p": last.get(f"p_{name}"),
                "ratio": last.get(suffixed("error_ratio", name)),
                "stability": stability.get(name),
                "value": last.get(name),
                "low": low,
                "high": high,
                "share": last.get(suffixed("share", name)),
                "best": best.get(name),
                "best_epoch": best.get("epoch"),
            }
        )
    return sorted(
        rows, key=lambda row: (1 if row["p"] is None else row["p"], -(row["ratio"] or 0), -(row["share"] or 0))
    )


def _best(records: Sequence[Record], name: str) -> Record:
    return max((record for record in records if name in record), key=lambda record: record[name], default={})


def _ends(run: MonitorRun, name: str) -> tuple[float | None, float | None]:
    """Return the ends of a value's baseline; those of a cosine do not pass 1, where no value can be."""
    low, _, high = run.baseline.get(name, _NO_BAND)
    bounded = name in _BOUNDED or name.startswith("cluster_")
    return low, min(high, 1.0) if bounded and high is not None else high


def _meaning(run: MonitorRun, name: str) -> str:
    """Return what a value says; a name that ends in … stands for all that begin so."""
    families = (text for key, text in run.about.items() if key.endswith("…") and name.startswith(key[:-1]))
    return run.about.get(name) or next(families, "")


def value_rows(run: MonitorRun) -> list[dict[str, Any]]:
    """Return what whole images get in a comparison of two sets, each value with its baseline and meaning."""
    rows = []
    for name, value in run.records[-1].items():
        if region_of(name) is None and not name.startswith("baseline_") and not name.endswith("_seconds"):
            low, high = _ends(run, name)
            about = _meaning(run, name)
            rows.append(
                {"name": name, "value": value, "low": low, "high": high, "about": about, "cms": name in _BOUNDED}
            )
    return rows
