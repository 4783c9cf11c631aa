# SPDX-License-Identifier: Apache-2.0
"""Writing the report: everything in one HTML file that needs no network."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

from genmonitor._formatting import format_cms
from genmonitor._io import atomic_write
from genmonitor.report.charts import charts_of, map_of, region_rows, value_rows
from genmonitor.report.run import Monitored, Picture, Table, read_run

REPORT = "report.html"
MAX_PICTURES = 24
"""Checks whose samples a slider shows: the first, the last, and others evenly between."""
MAX_BYTES = 6_000_000
"""Of all pictures of a page; where they are more, fewer checks are shown."""
MAX_ALERTS = 5
"""That are shown at once, the latest first; the others are folded away."""
_DRAWN_BY_THE_PAGE = ("curves", "image_and_product", "clusters")


def write_report(folder: Path) -> Path:
    """Make `report.html` from what the monitors left in a folder, complete or not at all.

    Args:
        folder: that with the manifests, `<run>/genmonitor`.

    Returns:
        The page's path.
    """
    monitored, tables = read_run(folder)
    page = folder / REPORT
    atomic_write(page, _render(folder, monitored, tables).encode())
    return page


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("genmonitor", "report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"shown": _shown, "cms": format_cms}
    return environment


def _render(folder: Path, monitored: list[Monitored], tables: list[Table]) -> str:
    budget = MAX_BYTES // max(1, sum(len(m.pictures) for m in monitored))
    sections = [_section(m, budget) for m in monitored]
    parts = folder.resolve().parts
    run = parts[:-1] if parts[-1] == "genmonitor" else parts
    return (
        _environment()
        .get_template("page.html")
        .render(
            title="/".join(run[-2:]),
            folder=str(folder.resolve()),
            sections=sections,
            drawn=[{name: section[name] for name in ("charts", "map", "sliders")} for section in sections],
            max_alerts=MAX_ALERTS,
            tables=[_with_pictures(table, folder) for table in tables],
        )
    )


def _section(monitored: Monitored, budget: int) -> dict[str, Any]:
    figures, sliders = [], []
    for name, pictures in sorted(monitored.pictures.items(), key=lambda found: found[0] != "samples"):
        if name in _DRAWN_BY_THE_PAGE and monitored.partition is not None:
            continue
        if pictures[0].epoch is None:
            figures.append({"name": name.replace("_", " "), "source": embedded(pictures[0].path)})
        else:
            sliders.append({"name": name.replace("_", " "), "pictures": _chosen(pictures, budget), "of": len(pictures)})
    return {
        "prefix": monitored.prefix,
        "given": monitored.manifest,
        "notes": monitored.notes,
        "alerts": [alert["text"] for alert in reversed(monitored.alerts)],
        "last": monitored.checks[-1],
        "count": len(monitored.checks),
        "compared": monitored.compared,
        "whole": value_rows(monitored) if monitored.compared else [],
        "rows": region_rows(monitored),
        "charts": charts_of(monitored),
        "map": map_of(monitored),
        "figures": figures,
        "sliders": sliders,
        "about": monitored.about,
        "manifest": json.dumps(monitored.manifest, indent=1, ensure_ascii=False),
    }


def _chosen(pictures: list[Picture], budget: int) -> list[dict[str, Any]]:
    """Embed pictures spread evenly over the checks, the first and the last among them, as many as fit."""
    size = max(picture.path.stat().st_size for picture in pictures)
    count = max(2, min(MAX_PICTURES, len(pictures), budget // max(size, 1)))
    last = len(pictures) - 1
    indices = sorted({round(i * last / (count - 1)) for i in range(count)})
    return [
        {"epoch": pictures[i].epoch, "step": pictures[i].step, "source": embedded(pictures[i].path)} for i in indices
    ]


def embedded(path: Path) -> str:
    """Return a PNG file as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _with_pictures(table: Table, folder: Path) -> dict[str, Any]:
    """Return a table with each cell that names a PNG file of the folder embedded, as far as they fit."""
    left = MAX_BYTES

    def cell(value: Any) -> dict[str, str]:
        nonlocal left
        path = folder / value if isinstance(value, str) and value.endswith(".png") and "/" not in value else None
        if path is not None and path.is_file() and path.stat().st_size <= left:
            left -= path.stat().st_size
            return {"picture": embedded(path), "text": value}
        return {"picture": "", "text": _shown(value)}

    return {"name": table.name, "columns": table.columns, "rows": [[cell(x) for x in row] for row in table.rows]}


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)
