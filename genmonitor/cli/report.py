# SPDX-License-Identifier: Apache-2.0
"""`genmonitor report`: the page of a run, made again."""

from __future__ import annotations

import argparse
from typing import Any

from genmonitor.cli.arguments import given_path
from genmonitor.report import find_folder, write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "run", metavar="RUN", type=given_path, help="the folder of a run, such as runs/dcgan-digits/version_0"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Write the page."""
    return {"report": str(write_report(find_folder(args.run)))}


def said(result: dict[str, Any]) -> str:
    """Say the result in words."""
    return f"Report: {result['report']}"
