# SPDX-License-Identifier: Apache-2.0
"""Writing the report: everything in one HTML file that needs no network."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from genmonitor._io import atomic_write
from genmonitor.evaluation.results import MOMENT, Record
from genmonitor.report.files import FOLDER, HISTORY, REPORT
from genmonitor.report.pictures import Pictures
from genmonitor.report.run import MonitorRun, Run, read_run
from genmonitor.report.sections import section, summary

MAX_ALERTS = 5
"""That are shown at once, the latest first; the others are folded away."""


def write_report(folder: Path) -> Path:
    """Write `report.html` about what is in a folder, and `history.csv` with its values; complete or not at all.

    Args:
        folder: the one with the manifests, `<run>/genmonitor`.

    Returns:
        The page's path.

    Raises:
        OSError: if a file cannot be read or the page not written; the page from before is still there.
    """
    run = read_run(folder)
    atomic_write(folder / REPORT, _render(folder, run).encode())
    atomic_write(folder / HISTORY, history_csv(run.monitors).encode())
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
    sections = [section(monitor, pictures, run.tables) for monitor in run.monitors]
    shown = [x["closer"] for x in sections]
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
            tables=[table for table in run.tables if table not in shown],
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
    writer.writerow([*MOMENT, *columns])
    for moment, row in sorted(rows.items(), key=lambda pair: [x if x is not None else -1 for x in reversed(pair[0])]):
        writer.writerow([*("" if x is None else x for x in moment), *(row.get(name, "") for name in columns)])
    return file.getvalue()
