# SPDX-License-Identifier: Apache-2.0
"""The report: one HTML file that needs no network, with a section for each monitor."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from genmonitor._formatting import significant
from genmonitor._io import write_text
from genmonitor.evaluation.results import MOMENT, Record
from genmonitor.report.answers import answers_of, best_of, end_of, title_of
from genmonitor.report.charts import charts_of, map_of, region_rows, value_rows
from genmonitor.report.files import FOLDER, HISTORY, REPORT
from genmonitor.report.pictures import Pictures
from genmonitor.report.run import MonitorRun, Run, read_run

WHICH_IS_CLOSER = "which is closer"
"""Name of the table of a comparison of two generated sets."""
SETS = ("real_images", "generated_images", "other_images")


def write_report(folder: Path) -> Path:
    """Write `report.html` about the runs in a folder, and `history.csv` with their values, complete or not at all.

    Args:
        folder: Folder with the files of monitors, `<run>/genmonitor`.

    Returns:
        Path of the page.

    Raises:
        OSError: If a file cannot be read or the page cannot be written; the previous page remains.
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
    sections = [section(monitor, pictures, folder) for monitor in run.monitors]
    tables = {f"{of.prefix} {name}": table for of in run.monitors for name, table in of.tables.items()}
    content = {
        "title": run_name(folder),
        "folder": str(folder.resolve()),
        "unreadable": run.unreadable,
        "alerts": _alerts(sections),
        "max_alerts": 5,  # others are folded away, and so are charts
        "open_charts": max(1, 6 // max(1, len(sections))),
        "sections": sections,
        "moments": _moments(sections),
        "drawn": [x["drawn"] for x in sections],
        "tables": {name: table for name, table in tables.items() if not name.endswith(WHICH_IS_CLOSER)},
    }
    return str(_environment().get_template("page.html").render(content))


def _alerts(sections: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the alerts of all monitors, the latest first."""
    alerts = [alert for x in sections for alert in reversed(x["alerts"])]
    return sorted(alerts, key=lambda alert: -(alert["step"] or 0))


def _moments(sections: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the moments of all evaluations, for the slider of the page."""
    found = {moment["step"]: moment for x in sections for moment in x["drawn"]["moments"] if moment["step"] is not None}
    return [found[step] for step in sorted(found)]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return significant(value, 5) if isinstance(value, float) else str(value)


def section(run: MonitorRun, pictures: Pictures, folder: Path) -> dict[str, Any]:
    """Return the text and drawings of a monitor on the page.

    Args:
        run: Run of the monitor.
        pictures: Pictures of the page.
        folder: Folder with its files.
    """
    rows, given = region_rows(run), ("monitor", "heading", "message", *SETS, "n_samples", "split")
    told = {name: run.manifest.get(name) for name in given}
    return {
        "prefix": run.prefix,
        "title": title_of(run),
        "given": {name: "" if value is None else str(value) for name, value in told.items()},
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
        "best": best_of(run, folder),
        "drawn": _drawn(run, pictures),
    }


def _drawn(run: MonitorRun, pictures: Pictures) -> dict[str, Any]:
    """Return the data that the scripts of the page draw."""
    return {
        "charts": charts_of(run),
        "map": map_of(run),
        "sliders": pictures.sliders(run),
        "images": pictures.images(run),
        "sets": [str(run.manifest.get(name)) for name in SETS[1:]] if run.compared else [],
        "moments": [{"epoch": record.get("epoch"), "step": record.get("step")} for record in run.records],
        "answers": answers_of(run),
        "diagnoses": pictures.diagnoses(run),
    }


def history_csv(monitors: Sequence[MonitorRun]) -> str:
    """Return a row for each evaluation, with the values of all monitors by log key; missing ones are empty.

    Args:
        monitors: Monitors of a run; evaluations at the same step share a row.
    """
    rows: dict[tuple[float | None, ...], Record] = {}
    for monitor in monitors:
        for record in monitor.records:
            row = rows.setdefault(tuple(record.get(name) for name in MOMENT), {})
            row |= {f"{monitor.prefix}/{name}": value for name, value in record.items() if name not in MOMENT}
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    # a spreadsheet would compute a formula
    writer.writerow([*MOMENT, *(f"'{name}" if name.startswith(tuple("=+-@\t\r")) else name for name in columns)])
    for moment, row in sorted(rows.items(), key=lambda pair: [x if x is not None else -1 for x in reversed(pair[0])]):
        writer.writerow([*("" if x is None else x for x in moment), *(row.get(name, "") for name in columns)])
    return file.getvalue()
