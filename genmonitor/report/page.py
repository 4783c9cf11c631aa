# SPDX-License-Identifier: Apache-2.0
"""The report: everything in one HTML file that needs no network; what it says of each monitor, and writing it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from genmonitor._io import write_text
from genmonitor.evaluation.findings import Finding, headlines
from genmonitor.evaluation.results import MOMENT, Record
from genmonitor.evaluation.values import meanings
from genmonitor.functional.diagnosis.kinds import KINDS
from genmonitor.report.charts import charts_of, map_of, region_rows, value_rows
from genmonitor.report.files import FOLDER, HISTORY, REPORT
from genmonitor.report.pictures import Pictures
from genmonitor.report.run import MonitorRun, Note, Run, read_run

MAX_ALERTS = 5
"""That are shown at once, the latest first; the others are folded away."""
WHICH_IS_CLOSER = "which is closer"
"""Name of the table of a comparison of two generated sets."""
GALLERY = "https://github.com/genmonitor/genmonitor/blob/main/docs/pictures/kinds/{}.png"
_GIVEN = ("monitor", "heading", "message", "real_images", "generated_images", "other_images", "n_samples", "split")


def write_report(folder: Path) -> Path:
    """Write `report.html` about what is in a folder, and `history.csv` with its values; complete or not at all.

    Args:
        folder: the one with the files of monitors, `<run>/genmonitor`.

    Returns:
        The page's path.

    Raises:
        OSError: if a file cannot be read or the page not written; the page from before is still there.
    """
    run = read_run(folder)
    write_text(folder / REPORT, _render(folder, run))
    write_text(folder / HISTORY, history_csv(run.monitors))
    return folder / REPORT


def run_name(folder: Path) -> str:
    """Name the run of a folder by the last two parts of its path.

    Example:
        >>> run_name(Path("/runs/dcgan/version_0/genmonitor"))
        'dcgan/version_0'
    """
    path = folder.resolve().parts
    return "/".join((path[:-1] if path[-1] == FOLDER else path)[-2:])


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("genmonitor", "report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["shown"] = _shown
    return environment


def _render(folder: Path, run: Run) -> str:
    pictures = Pictures(run.monitors)
    sections = [section(monitor, pictures) for monitor in run.monitors]
    tables = {f"{of.prefix} {name}": table for of in run.monitors for name, table in of.tables.items()}
    return str(
        _environment()
        .get_template("page.html")
        .render(
            title=run_name(folder),
            folder=str(folder.resolve()),
            unreadable=run.unreadable,
            findings=[summary(monitor) for monitor in run.monitors],
            alerts=_alerts(sections),
            max_alerts=MAX_ALERTS,
            sections=sections,
            moments=_moments(sections),
            drawn=[x["drawn"] for x in sections],
            tables={name: table for name, table in tables.items() if not name.endswith(WHICH_IS_CLOSER)},
        )
    )


def _alerts(sections: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the alerts of all monitors, the latest first."""
    alerts = [alert for x in sections for alert in reversed(x["alerts"])]
    return sorted(alerts, key=lambda alert: -(alert["step"] or 0))


def _moments(sections: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return when any monitor evaluated: what the slider of the page goes through."""
    found = {moment["step"]: moment for x in sections for moment in x["drawn"]["moments"] if moment["step"] is not None}
    return [found[step] for step in sorted(found)]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def summary(run: MonitorRun) -> dict[str, Any]:
    """Return the findings to look at first of what a monitor left, but for later ones that are alerts too."""
    if not run.findings:
        lines, fine = [{"text": run.messages[-1], "cause": "", "gallery": ""}], None
    else:
        alerts = {note.text for note in run.notes if note.alert is not None}
        found = [x for i, x in enumerate(headlines(run.findings)) if not i or x.text not in alerts]
        lines = [{"text": x.text, "cause": x.cause, "gallery": _gallery(x)} for x in found]
        fine = found[0].fine
    return {"prefix": run.prefix, "title": _title(run), "fine": fine, "lines": lines}


def _gallery(finding: Finding) -> str:
    """Return the address of a picture of such a fault; empty where it is no kind of the package's own."""
    return GALLERY.format(finding.kinds[0].name) if finding.kinds and finding.kinds[0].name in KINDS else ""


def section(run: MonitorRun, pictures: Pictures) -> dict[str, Any]:
    """Return what the page says and draws of a monitor.

    Args:
        run: what it left.
        pictures: of the page.
    """
    rows = region_rows(run)
    return {
        "prefix": run.prefix,
        "title": _title(run),
        "given": {name: "" if run.manifest.get(name) is None else str(run.manifest[name]) for name in _GIVEN},
        "last": {name: run.records[-1].get(name) for name in ("epoch", "images_seen")},
        "notes": [note.text for note in run.notes if note.alert is None],
        "alerts": [{**asdict(note), "end": end_of(run, note)} for note in run.notes if note.alert is not None],
        "count": len(run.records),
        "compared": run.compared,
        "closer": run.tables.get(WHICH_IS_CLOSER) if run.compared else None,
        "whole": value_rows(run) if run.compared else [],
        "rows": rows,
        "stable": any(row["stability"] is not None for row in rows),
        "columns": list(dict.fromkeys(column for row in rows for column in row["cells"])),
        "figures": pictures.latest(run),
        "about": meanings(list(run.values.values())),
        "manifest": json.dumps(_abridged(run.manifest), indent=1, ensure_ascii=False),
        "drawn": _drawn(run, pictures),
    }


def end_of(run: MonitorRun, alert: Note) -> float | None:
    """Return the epoch of the first later evaluation that no longer finds what an alert is about; None if all do."""
    later = (x for x in run.evaluations if x["values"].get("step", -1) > (alert.step or 0))
    return next((x["values"].get("epoch") for x in later if alert.alert not in x["wrong"]), None)


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
    said = zip(run.records, run.messages, strict=True)
    return [{"epoch": x.get("epoch"), "step": x.get("step"), "text": text} for x, text in said if text]


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
    if not strips or not strips[-1].about["distances"]:
        return ""
    times = median(strips[-1].about["distances"])
    typical = "as far" if 0.9 <= times <= 1.1 else f"{times:.2g} times as far"
    return f"Samples are {typical} from their nearest real images as other real images are."


def history_csv(monitors: Sequence[MonitorRun]) -> str:
    """Return a row for each evaluation, with the values of all monitors under their log keys; what one lacks is empty.

    Args:
        monitors: of a run; those that evaluated at one step share a row.
    """
    rows: dict[tuple[float | None, ...], Record] = {}
    for monitor in monitors:
        for record in monitor.records:
            row = rows.setdefault(tuple(record.get(name) for name in MOMENT), {})
            row |= {f"{monitor.prefix}/{name}": value for name, value in record.items() if name not in MOMENT}
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*MOMENT, *map(_no_formula, columns)])
    for moment, row in sorted(rows.items(), key=lambda pair: [x if x is not None else -1 for x in reversed(pair[0])]):
        writer.writerow([*("" if x is None else x for x in moment), *(row.get(name, "") for name in columns)])
    return file.getvalue()


def _no_formula(name: str) -> str:
    """Return the name of a column, with an apostrophe before what a spreadsheet would calculate."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
