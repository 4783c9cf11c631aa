# SPDX-License-Identifier: Apache-2.0
"""`genmonitor report`: the page of a run written again, or two runs on one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from genmonitor.cli.arguments import nonempty_path
from genmonitor.report import find_folder, write_comparison, write_report
from genmonitor.report.run import MonitorRun, read_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("run", metavar="RUN", type=nonempty_path, help="the folder of a run, such as runs/dcgan-digits/version_0")
    add("other", metavar="OTHER", type=nonempty_path, nargs="?", help="another run to compare it with")
    add(
        "--out",
        metavar="FILE",
        type=nonempty_path,
        help="where to write the page of two runs (default: compared_runs.html in this folder); that of one run goes "
        "into its folder",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Write the page."""
    if args.other is not None:
        page = args.out or Path("compared_runs.html")
        return {"report": str(write_comparison(find_folder(args.run), find_folder(args.other), page))}
    if args.out is not None:
        raise ValueError(
            f"Expected --out with two runs only, but got {args.out} with {args.run} alone. Leave --out out."
        )
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
