# SPDX-License-Identifier: Apache-2.0
"""`genmonitor report`: the page of a run, made again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from genmonitor.cli.arguments import nonempty_path
from genmonitor.report import find_folder, write_report
from genmonitor.report.run import read_run


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    text = "folder of a run, such as runs/dcgan-digits/version_0"
    parser.add_argument("run", metavar="RUN", type=nonempty_path, help=text)


def run(args: Namespace) -> tuple[dict[str, Any], str]:
    """Write the report."""
    report = write_report(find_folder(args.run))
    unreadable = read_run(report.parent).unreadable
    return {"report": str(report), "unreadable": unreadable}, "\n".join([*unreadable, f"Report: {report}"])
