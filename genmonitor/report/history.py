# SPDX-License-Identifier: Apache-2.0
"""The values of all evaluations as one CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from genmonitor.evaluation.results import MOMENT, Record
from genmonitor.report.run import MonitorRun


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
