# SPDX-License-Identifier: Apache-2.0
"""`genmonitor sweep`: the checkpoints of a run, evaluated as if a monitor had been there."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from genmonitor.cli.arguments import given, given_path, number_above, whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="+",
        type=given_path,
        help="the folder of a run, such as lightning_logs/version_3, of which every .ckpt file is taken; or such files",
    )
    parser.add_argument(
        "--setup",
        metavar="FILE.py:FUNCTION",
        type=given,
        help="a function without arguments that returns (trainer, module, data), (module, data) or (module, data, "
        "monitor) as for training; without a monitor, a PixelClusterMonitor evaluates",
    )
    parser.add_argument(
        "--config",
        metavar="FILE.yaml",
        type=given_path,
        help="a file of Lightning's command line instead (default: the config.yaml that it left in RUN)",
    )
    parser.add_argument(
        "--script", metavar="FILE.py", type=given_path, help="the script that trained with it, for classes beside it"
    )
    parser.add_argument("--out", metavar="FOLDER", type=given_path, help="where to (default: RUN)")
    parser.add_argument(
        "--workers",
        metavar="N",
        type=whole_number(1),
        default=1,
        help="processes that draw samples, one GPU each where there are several (1)",
    )
    parser.add_argument(
        "--device", metavar="D", type=given, help="cpu, cuda, cuda:1 or mps (default: the kind of the training's)"
    )
    parser.add_argument(
        "--follow", action="store_true", help="wait for further checkpoints, beside a training, until Ctrl-C"
    )
    parser.add_argument(
        "--idle", metavar="MINUTES", type=number_above(0), help="with --follow: stop after so long without a new one"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Evaluate the checkpoints."""
    from genmonitor.callbacks.checkpoints.sweep import sweep

    with redirect_stdout(sys.stderr):  # the result alone goes where the user may send it
        found = sweep(
            args.run,
            args.setup,
            config=args.config,
            script=args.script,
            out=args.out,
            workers=args.workers,
            device=args.device,
            follow=args.follow,
            idle=args.idle,
            tell=partial(print, flush=True),
        )
    return {
        "folder": str(found.folder),
        "evaluated": found.evaluated,
        "before": found.before,
        "skipped": found.skipped,
        "histories": found.histories,
    }


def said(result: dict[str, Any]) -> str:
    """Say the result in words."""
    before = f", {result['before']} before" if result["before"] else ""
    n = len(result["evaluated"])
    rows = [f"Evaluated {n} checkpoint{'' if n == 1 else 's'}{before}, in {result['folder']}."]
    rows += [f"Skipped {name}: {why}" for name, why in result["skipped"].items()]
    return "\n".join(rows)
