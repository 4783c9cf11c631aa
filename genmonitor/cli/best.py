# SPDX-License-Identifier: Apache-2.0
"""`genmonitor best`: the best checkpoint of a run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from genmonitor.cli.arguments import nonempty_path
from genmonitor.report.answers import find_checkpoint
from genmonitor.report.run import find_folder, read_run


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    text = "folder of a run, such as runs/dcgan-digits/version_0"
    parser.add_argument("run", metavar="RUN", type=nonempty_path, help=text)


def run(args: Namespace) -> tuple[dict[str, Any], str]:
    """Find the best evaluation and its checkpoint."""
    folder = find_folder(args.run)
    found = read_run(folder)
    best = next((monitor.best for monitor in found.monitors if monitor.best is not None), None)
    if best is None:
        got = "; ".join([*(monitor.prefix for monitor in found.monitors), *found.unreadable]).removesuffix(".")
        raise ValueError(f"Expected a monitor of a training that ranks its evaluations, but got {got}.")
    step, epoch = best.get("global_step"), best["values"]["epoch"]
    step = best["values"]["step"] if step is None else step
    path = find_checkpoint(folder.parent, step, ("", "**/"))
    if path is None:
        raise ValueError(
            f"Expected the checkpoint of epoch {epoch:g} (step {step:g}), which is the one to keep, but "
            f"{folder.parent} has none of this step. Train with ModelCheckpoint(monitor=monitor.key), which keeps it; "
            "in a loop of your own save one where `monitor.is_best`."
        )
    result = {"checkpoint": str(path), "epoch": epoch, "step": step, "message": best["message"]}
    return result, result["checkpoint"]
