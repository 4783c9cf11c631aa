# SPDX-License-Identifier: Apache-2.0
"""`genmonitor report`: writes the page of a run again, or merges several runs into one."""

from __future__ import annotations

import argparse
from typing import Any

from genmonitor.cli.arguments import nonempty_path
from genmonitor.report import find_folder, write_report
from genmonitor.report.merge import merge_runs
from genmonitor.report.run import MonitorRun, read_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add(
        "run",
        metavar="RUN",
        nargs="+",
        type=nonempty_path,
        help="the folder of a run, such as runs/dcgan-digits/version_0; or several to merge, such as those of the "
        "tasks of an array job, each of which evaluated some checkpoints of one training",
    )
    add("--out", metavar="FOLDER", type=nonempty_path, help="the folder of the merged run")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Write the page."""
    if (len(args.run) > 1) != (args.out is not None):
        raise ValueError("--out FOLDER is required when merging several runs, and not allowed with one.")
    report = write_report(find_folder(args.run[0])) if args.out is None else merge_runs(args.run, args.out)
    run = read_run(report.parent)
    monitors = {monitor.prefix: _as_data(monitor) for monitor in run.monitors}
    return {"report": str(report), "monitors": monitors, "unreadable": run.unreadable}


def _as_data(monitor: MonitorRun) -> dict[str, Any]:
    """Return the last evaluation of a monitor."""
    return {
        "evaluations": len(monitor.records),
        "findings": [finding.to_dict() for finding in monitor.findings],
        "values": monitor.records[-1],
        "baseline": monitor.baseline,
    }


def show(result: dict[str, Any]) -> str:
    """Format the result as text."""
    return "\n".join([*result["unreadable"], f"Report: {result['report']}"])
