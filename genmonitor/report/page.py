# SPDX-License-Identifier: Apache-2.0
"""Writing the report: everything in one HTML file that needs no network."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from genmonitor._formatting import format_cms, format_ratio
from genmonitor._io import atomic_write
from genmonitor.report.charts import charts_of, map_of, region_rows, value_rows
from genmonitor.report.files import REPORT, own_files
from genmonitor.report.run import MonitorRun, Picture, Run, read_run
from genmonitor.report.tables import NamedTable

MAX_PICTURES = 24
"""Evaluations whose samples a slider shows: the first, the last, and others evenly between."""
MAX_BYTES = 6_000_000
"""Of all pictures of a page; where they are more, fewer evaluations are shown."""
MAX_ALERTS = 5
"""That are shown at once, the latest first; the others are folded away."""
WHICH_IS_CLOSER = "which is closer"
"""What a comparison of two generated sets calls its table, behind its prefix."""
_DRAWN_BY_THE_PAGE = ("curves", "image_and_product", "clusters")


def write_report(folder: Path) -> Path:
    """Write `report.html` about what is in a folder, complete or not at all.

    Args:
        folder: the one with the manifests, `<run>/genmonitor`.

    Returns:
        The page's path.

    Raises:
        OSError: if a file cannot be read or the page not written; the page from before is still there.
    """
    page = folder / REPORT
    atomic_write(page, _render(folder, read_run(folder)).encode())
    return page


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("genmonitor", "report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"shown": _shown, "cms": _shown_cms, "percent": _shown_percent, "times": _shown_ratio}
    return environment


def _render(folder: Path, run: Run) -> str:
    budget = MAX_BYTES // max(1, sum(len(monitor.pictures) for monitor in run.monitors))
    sections = [_section(monitor, budget, run.tables) for monitor in run.monitors]
    shown = [section["closer"] for section in sections]
    parts = folder.resolve().parts
    parts = parts[:-1] if parts[-1] == "genmonitor" else parts
    return (
        _environment()
        .get_template("page.html")
        .render(
            title="/".join(parts[-2:]),
            folder=str(folder.resolve()),
            unreadable=run.unreadable,
            sections=sections,
            drawn=[{name: section[name] for name in ("charts", "map", "sliders")} for section in sections],
            max_alerts=MAX_ALERTS,
            tables=[_with_pictures(table, folder) for table in run.tables if table not in shown],
        )
    )


def _section(run: MonitorRun, budget: int, tables: Sequence[NamedTable]) -> dict[str, Any]:
    rows = region_rows(run)
    figures, sliders = _pictures(run, budget)
    given = ("monitor", "message", "real_images", "generated_images", "other_images", "n_samples", "split")
    return {
        "prefix": run.prefix,
        "given": {name: _shown(run.manifest.get(name)) for name in given},
        "last": {name: run.records[-1].get(name) for name in ("epoch", "images_seen")},
        "notes": [note.text for note in run.notes if note.epoch is None],
        "alerts": [note.text for note in reversed(run.notes) if note.epoch is not None],
        "count": len(run.records),
        "compared": run.compared,
        "closer": next((x for x in tables if run.compared and x.name == f"{run.prefix} {WHICH_IS_CLOSER}"), None),
        "whole": value_rows(run) if run.compared else [],
        "rows": rows,
        "stable": any(row["stability"] is not None for row in rows),
        "charts": charts_of(run),
        "map": map_of(run),
        "figures": figures,
        "sliders": sliders,
        "about": run.about,
        "manifest": json.dumps(run.manifest, indent=1, ensure_ascii=False),
    }


def _pictures(run: MonitorRun, budget: int) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    """Return the latest figures, and sliders over those that each evaluation has; samples come first."""
    figures, sliders = [], []
    for kind, pictures in sorted(run.pictures.items(), key=lambda found: found[0] != "samples"):
        name = kind.replace("_", " ")
        if kind in _DRAWN_BY_THE_PAGE and run.partition is not None:
            continue
        if pictures[-1].epoch is None:
            figures.append({"name": name, "source": embedded(pictures[-1].path)})
        else:
            sliders.append({"name": name, "pictures": _chosen(pictures, budget), "of": len(pictures)})
    return figures, sliders


def _chosen(pictures: list[Picture], budget: int) -> list[dict[str, Any]]:
    """Embed pictures spread evenly over the evaluations, the first and the last among them, as many as fit."""
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


def _with_pictures(table: NamedTable, folder: Path) -> dict[str, Any]:
    """Return a table with each cell that names a PNG file of the folder embedded, as far as they fit."""
    pictures = {path.name: path for path in own_files(folder) if path.suffix == ".png"}
    left = MAX_BYTES

    def cell(value: Any) -> dict[str, str]:
        nonlocal left
        path = pictures.get(value) if isinstance(value, str) else None
        if path is not None and path.stat().st_size <= left:
            left -= path.stat().st_size
            return {"picture": embedded(path), "text": value}
        return {"picture": "", "text": _shown(value)}

    return {"name": table.name, "columns": table.columns, "rows": [[cell(x) for x in row] for row in table.rows]}


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _shown_cms(value: float | None) -> str:
    return "" if value is None else format_cms(value)


def _shown_percent(share: float | None) -> str:
    return "" if share is None else f"{round(100 * share)} %"


def _shown_ratio(ratio: float | None) -> str:
    return "" if ratio is None else format_ratio(ratio)
