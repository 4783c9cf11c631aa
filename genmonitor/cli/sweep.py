# SPDX-License-Identifier: Apache-2.0
"""`genmonitor sweep`: evaluates the checkpoints of a run as a monitor would have done during training."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Any

from genmonitor._io import printable
from genmonitor.cli.arguments import add_setup_argument, nonempty, nonempty_path

KEPT_WHEN_STOPPED = ". Finished evaluations are kept: run the same command again to continue"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    text = "folder of a run, such as lightning_logs/version_3, whose .ckpt files are evaluated; or such files"
    add("run", metavar="RUN", nargs="+", type=nonempty_path, help=text)
    returns = "(trainer, module, data), (module, data) or (module, data, monitor) as for training"
    add_setup_argument(parser, f"{returns}; without a monitor, a PixelClusterMonitor evaluates")
    add("--out", metavar="FOLDER", type=nonempty_path, help="folder of the result (default: RUN)")
    add("--device", metavar="D", type=nonempty, help="cpu, cuda, cuda:1 or mps (default: as in training)")


def run(args: Namespace) -> tuple[dict[str, Any], str]:
    """Evaluate the checkpoints."""
    from genmonitor.callbacks.sweep import sweep

    with redirect_stdout(sys.stderr):  # only the result goes to standard output
        swept = sweep(
            args.run, args.setup, out=args.out, device=args.device, tell=lambda text: print(printable(text), flush=True)
        )
    result = asdict(swept)
    return result, show(result)


def show(result: dict[str, Any]) -> str:
    """Format the result as text."""
    before = f", {result['before']} before" if result["before"] else ""
    n = len(result["evaluated"])
    rows = [f"Evaluated {n} checkpoint{'' if n == 1 else 's'}{before}, in {result['folder']}."]
    rows += [f"Skipped {name}: {why}" for name, why in result["skipped"].items()]
    return "\n".join(rows)
