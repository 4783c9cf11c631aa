# SPDX-License-Identifier: Apache-2.0
"""The charts and the map of regions of the report's page, as plain data that its script draws."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from genmonitor.plotting.style import cluster_color, cluster_name, inmost
from genmonitor.report.run import Monitored

_NOT_DRAWN = ("epoch", "step", "images_seen")
_BOUNDED = ("image", "product", "constant")


def charts_of(monitored: Monitored) -> list[dict[str, Any]]:
    """Return the charts of a monitor: those it asked for, then one for each value that is left.

    Two sets of images that were compared have only the first, of the regions: with one check there is no more to draw.
    """
    checks = monitored.checks
    grouped = {title: [name for name in names if name in checks[-1]] for title, names in monitored.charts.items()}
    shown = {name for names in grouped.values() for name in names} | set(_NOT_DRAWN)
    left = [name for name in checks[-1] if name not in shown and not name.startswith("yardstick_")]
    grouped |= {name: [name] for name in left}
    charts = [(title, names) for title, names in grouped.items() if names]
    return [
        _chart(monitored, title, names, monitored.alerts if number == 0 else [])
        for number, (title, names) in enumerate(charts[:1] if monitored.compared else charts)
    ]


def _chart(monitored: Monitored, title: str, names: list[str], alerts: list[dict[str, Any]]) -> dict[str, Any]:
    checks = monitored.checks
    epochs = [check.get("epoch") for check in checks]
    by = "epoch" if len(set(epochs)) == len(epochs) else "step"  # several checks in an epoch would fall on one line
    cosines = all(name in _BOUNDED or name.startswith("cluster_") for name in names)
    yardstick = monitored.manifest.get("yardstick", {})
    return {
        "title": title,
        "note": monitored.about.get(names[0], "") if len(names) == 1 else "",
        "kind": "stack" if all(name.startswith("share_") for name in names) else "lines",
        "scale": "cms" if cosines else "linear",
        "by": "" if monitored.compared else by,
        "x": [check.get(by, 0) for check in checks],
        "alerts": [{"x": alert[by], "text": alert["text"]} for alert in alerts],
        "series": [
            {
                "name": name,
                "label": name.replace("_", " "),
                "region": region_of(name),
                "color": _color(name, number),
                "dashed": name == "product",
                "values": [_number(check.get(name)) for check in checks],
                "band": yardstick.get(name),
            }
            for number, name in enumerate(names, start=1)
        ],
    }


def region_of(name: str) -> int | None:
    """Return the label of the region that a value is of, None where it is of none.

    Example:
        >>> region_of("cluster_2"), region_of("share_constant"), region_of("share_3"), region_of("image")
        (2, 0, 3, None)
    """
    for prefix in ("cluster_", "share_"):
        if name.startswith(prefix) and name.removeprefix(prefix).isdigit():
            return int(name.removeprefix(prefix))
    return 0 if name in ("constant", "share_constant") else None


def _color(name: str, number: int) -> str:
    region = region_of(name)
    if region is None and name in _BOUNDED:
        return "var(--ink)"
    return cluster_color(number if region is None else region)


def map_of(monitored: Monitored) -> dict[str, Any] | None:
    """Return the map of regions as a path for each and where its number stands, None without a partition."""
    if monitored.partition is None:
        return None
    labels = monitored.partition.labels
    h, w = labels.shape
    regions = [
        {
            "region": label,
            "color": cluster_color(label),
            "path": _path(labels == label),
            "at": inmost((labels == label).numpy()),
        }
        for label in monitored.partition.regions().values()
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


def region_rows(monitored: Monitored) -> list[dict[str, Any]]:
    """Return what the last check says of each region, the most to blame first."""
    if monitored.partition is None:
        return []
    last, sizes = monitored.checks[-1], monitored.partition.sizes()
    yardstick = monitored.manifest.get("yardstick", {})
    rows = []
    for name, label in monitored.partition.regions().items():
        best = max(monitored.checks, key=lambda check, name=name: check[name])  # type: ignore[misc]
        low, _, high = yardstick.get(name, (None, None, None))
        rows.append(
            {
                "region": label,
                "name": cluster_name(label),
                "color": cluster_color(label),
                "sites": sizes[label],
                "value": last[name],
                "low": low,
                "high": high,
                "share": last[f"share_{name.removeprefix('cluster_')}"],
                "best": best[name],
                "best_epoch": best.get("epoch"),
            }
        )
    return sorted(rows, key=lambda row: -row["share"])


def value_rows(monitored: Monitored) -> list[dict[str, Any]]:
    """Return what two sets of images that were compared get as a whole, with its yardstick and what it says."""
    yardstick = monitored.manifest.get("yardstick", {})
    rows = []
    for name, value in monitored.checks[-1].items():
        if region_of(name) is None:
            low, _, high = yardstick.get(name, (None, None, None))
            about = monitored.about.get(name, "")
            rows.append(
                {"name": name, "value": value, "low": low, "high": high, "about": about, "cms": name in _BOUNDED}
            )
    return rows


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
