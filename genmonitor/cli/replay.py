# SPDX-License-Identifier: Apache-2.0
"""`genmonitor replay`: measures a logged evaluation again."""

from __future__ import annotations

import sys
import warnings
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stdout
from typing import Any

from genmonitor._manifest import versions
from genmonitor.cli.arguments import add_setup_argument, nonempty_path
from genmonitor.cli.processes import show_progress
from genmonitor.findings.tables import Table, aligned


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    text = "file of a monitor's run, such as cms_run.json in a run's genmonitor folder"
    add("run", metavar="RUN.json", type=nonempty_path, help=text)
    text = "checkpoint that was saved after the evaluation to measure again"
    add("--checkpoint", metavar="CKPT", type=nonempty_path, required=True, help=text)
    add_setup_argument(parser, "(module, data, monitor) or (trainer, module, data) as for training, with the monitors")


def run(args: Namespace) -> tuple[dict[str, Any], str]:
    """Measure again and compare with the logged values."""
    from genmonitor.callbacks.replay import logged_evaluation, replay

    manifest = logged_evaluation(args.run, args.checkpoint)
    # only the result goes to standard output
    with show_progress("measuring again"), redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on training
        replayed = replay(args.run, args.checkpoint, args.setup)
    logged = manifest["repeatable"]
    then, now = manifest["versions"], versions()
    result = {
        "values": {name: {"logged": logged[name], "replayed": value} for name, value in replayed.items()},
        "not_replayed": [name for name in logged if name not in replayed],
        "same": all(logged[name] == value for name, value in replayed.items()),
        "processes": manifest["processes"],
        "other_versions": {name: then[name] for name in then if now.get(name) != then[name]},
    }
    return result, show(result)


def show(result: dict[str, Any]) -> str:
    """Format the result as text."""
    pairs = {name: (value["logged"], value["replayed"]) for name, value in result["values"].items()}
    cells = [[name, repr(then), "the same" if now == then else repr(now)] for name, (then, now) in pairs.items()]
    rows = [aligned(Table(["value", "logged", "replayed"], cells)), ""]
    if result["same"]:
        rows.append("The same to the last bit.")
    else:
        rows.append(f"{sum(then != now for then, now in pairs.values())} of {len(pairs)} values differ.")
        if result["processes"] > 1:
            rows.append(f"The run had {result['processes']} processes, which sum in another order.")
        if result["other_versions"]:
            rows.append(f"The run used different versions: {result['other_versions']}.")
    if result["not_replayed"]:
        rows.append(f"Not replayed: {', '.join(result['not_replayed'])}. Give the monitor with --setup.")
    return "\n".join(rows)
