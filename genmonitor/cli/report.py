# SPDX-License-Identifier: Apache-2.0
"""`genmonitor report`: the page of a run, made again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from genmonitor.cli.arguments import nonempty_path
from genmonitor.report import find_folder, write_report
from genmonitor.report.run import MonitorRun, read_run


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    text = "folder of a run, such as runs/dcgan-digits/version_0"
    parser.add_argument("run", metavar="RUN", type=nonempty_path, help=text)


def run(args: Namespace) -> tuple[dict[str, Any], str]:
    """Write the page."""
    report = write_report(find_folder(args.run))
    run = read_run(report.parent)
    monitors = {monitor.prefix: _as_data(monitor) for monitor in run.monitors}
    result = {"report": str(report), "monitors": monitors, "unreadable": run.unreadable}
    return result, "\n".join([*run.unreadable, f"Report: {report}"])


def _as_data(monitor: MonitorRun) -> dict[str, Any]:
    """Return the last evaluation of a monitor."""
    evaluated = {"evaluations": len(monitor.records), "findings": [x.to_dict() for x in monitor.findings]}
    return evaluated | {"values": monitor.records[-1], "baseline": monitor.baseline}
