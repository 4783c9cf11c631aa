# SPDX-License-Identifier: Apache-2.0
"""`genmonitor report`: the page of a run written again."""

from __future__ import annotations

import argparse
from typing import Any

from genmonitor.cli.arguments import nonempty_path
from genmonitor.report import find_folder, write_report
from genmonitor.report.run import MonitorRun, read_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "run", metavar="RUN", type=nonempty_path, help="the folder of a run, such as runs/dcgan-digits/version_0"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Write the page."""
    folder = find_folder(args.run)
    monitors = {monitor.prefix: _as_data(monitor) for monitor in read_run(folder).monitors}
    return {"report": str(write_report(folder)), "monitors": monitors}


def _as_data(monitor: MonitorRun) -> dict[str, Any]:
    """Return the last evaluation of a monitor."""
    return {
        "evaluations": len(monitor.records),
        "findings": [finding.to_dict() for finding in monitor.findings],
        "values": monitor.records[-1],
        "baseline": monitor.baseline,
    }


def format_plain(result: dict[str, Any]) -> str:
    """Format the result as text."""
    return f"Report: {result['report']}"
