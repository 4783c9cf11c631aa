# SPDX-License-Identifier: Apache-2.0
"""A monitor's part of the page, what the template says and what the scripts draw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median
from typing import Any

from genmonitor.evaluation.findings import Finding, headlines
from genmonitor.evaluation.values import meanings
from genmonitor.functional.diagnosis import KINDS
from genmonitor.report.charts import charts_of, map_of, region_rows, value_rows
from genmonitor.report.contents import NamedTable
from genmonitor.report.pictures import Pictures
from genmonitor.report.run import MonitorRun

WHICH_IS_CLOSER = "which is closer"
"""What a comparison of two generated sets calls its table, behind its prefix."""
GALLERY = "https://github.com/genmonitor/genmonitor/blob/main/docs/pictures/kinds/{}.png"
_GIVEN = ("monitor", "heading", "message", "real_images", "generated_images", "other_images", "n_samples", "split")


def summary(run: MonitorRun) -> dict[str, Any]:
    """Return the findings to look at first of what a monitor left."""
    if not run.findings or (run.compared and run.manifest.get("other_images")):
        said, fine = [{"text": run.messages[-1], "cause": "", "gallery": ""}], None
    else:
        found = headlines(run.findings)
        said = [{"text": x.text, "cause": x.cause, "gallery": _gallery(x)} for x in found]
        fine = found[0].fine
    return {"prefix": run.prefix, "title": _title(run), "fine": fine, "said": said}


def _gallery(finding: Finding) -> str:
    """Return the address of a picture of such a fault; empty where it is no kind of the package's own."""
    return GALLERY.format(finding.kinds[0].name) if finding.kinds and finding.kinds[0].name in KINDS else ""


def section(run: MonitorRun, pictures: Pictures, tables: Sequence[NamedTable]) -> dict[str, Any]:
    """Return what the page says and draws of a monitor.

    Args:
        run: what it left.
        pictures: of the page.
        tables: of the run.
    """
    rows = region_rows(run)
    return {
        "prefix": run.prefix,
        "title": _title(run),
        "given": {name: "" if run.manifest.get(name) is None else str(run.manifest[name]) for name in _GIVEN},
        "last": {name: run.records[-1].get(name) for name in ("epoch", "images_seen")},
        "notes": [note.text for note in run.notes if note.epoch is None],
        "alerts": [
            {"text": note.text, "epoch": note.epoch, "step": note.step} for note in run.notes if note.epoch is not None
        ],
        "count": len(run.records),
        "compared": run.compared,
        "closer": next((x for x in tables if run.compared and x.name == f"{run.prefix} {WHICH_IS_CLOSER}"), None),
        "whole": value_rows(run) if run.compared else [],
        "rows": rows,
        "thumbnails": pictures.regions(run) if rows else {},
        "stable": any(row["stability"] is not None for row in rows),
        "columns": list(dict.fromkeys(column for row in rows for column in row["cells"])),
        "figures": pictures.latest(run),
        "about": meanings(list(run.values.values())),
        "manifest": json.dumps(_abridged(run.manifest), indent=1, ensure_ascii=False),
        "drawn": _drawn(run, pictures),
    }


def _drawn(run: MonitorRun, pictures: Pictures) -> dict[str, Any]:
    """Return what the scripts of the page draw."""
    return {
        "charts": charts_of(run),
        "map": map_of(run),
        "sliders": pictures.sliders(run),
        "images": pictures.images(run),
        "sets": [str(run.manifest.get(name)) for name in ("generated_images", "other_images")] if run.compared else [],
        "copies": _copies(run),
        "moments": [{"epoch": record.get("epoch"), "step": record.get("step")} for record in run.records],
        "messages": [] if run.compared else _messages(run),
    }


def _messages(run: MonitorRun) -> list[dict[str, Any]]:
    return [{"step": x.get("step"), "text": text} for x, text in zip(run.records, run.messages, strict=True) if text]


def _abridged(value: Any) -> Any:
    """Return what a manifest holds with long lists cut: the file itself has all of them."""
    if isinstance(value, dict):
        return {name: _abridged(inner) for name, inner in value.items()}
    if isinstance(value, list):
        cut = [f"… and {len(value) - 8} more"] if len(value) > 12 else []
        return [*map(_abridged, value[:8] if cut else value), *cut]
    return value


def _title(run: MonitorRun) -> str:
    title = str(run.manifest.get("title") or run.manifest.get("monitor") or run.prefix)
    return title if run.compared else f"{title} ({run.prefix})"


def _copies(run: MonitorRun) -> str:
    """Say how near the last samples lie to real images, "" where that was not looked for."""
    strips = run.strips.get("images", [])
    if not strips or not strips[-1].distances:
        return ""
    distances = strips[-1].distances
    times = median(distances)
    typical = "as far" if 0.9 <= times <= 1.1 else f"{times:.2g} times as far"
    return f"Samples are {typical} from their nearest real images as other real images are."
