# SPDX-License-Identifier: Apache-2.0
"""`genmonitor sweep`: the checkpoints of a run, evaluated as if a monitor had been there."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from typing import Any

from genmonitor.cli.arguments import add_setup_arguments, nonempty, nonempty_path, whole_number

KEPT_WHEN_STOPPED = ". Finished evaluations are kept: run the same command again to continue"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add(
        "run",
        metavar="RUN",
        nargs="+",
        type=nonempty_path,
        help="folder of a run, such as lightning_logs/version_3, whose .ckpt files are evaluated; or such files",
    )
    returned = (
        "(trainer, module, data), (module, data) or (module, data, monitor) as for training; without a monitor, a "
        "PixelClusterMonitor evaluates"
    )
    add_setup_arguments(parser, returned, "RUN/config.yaml")
    add("--out", metavar="FOLDER", type=nonempty_path, help="where to write (default: RUN)")
    add("--device", metavar="D", type=nonempty, help="cpu, cuda, cuda:1 or mps (default: as in training)")
    count = whole_number(1)
    add("--devices", metavar="N", type=count, help="of each node (default: what torchrun or Slurm started, else 1)")
    add("--num-nodes", metavar="N", type=count, help="nodes (default: what torchrun or Slurm started, else 1)")
    add("--strategy", metavar="S", type=nonempty, default="auto", help="of the Trainer, such as ddp (default: auto)")
    add("--started-by", type=int, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Evaluate the checkpoints."""
    from genmonitor.callbacks.checkpoints.sweep import sweep

    if (args.num_nodes or 1) > 1 and not args.distributed:
        raise ValueError(
            f"Expected --distributed with --num-nodes {args.num_nodes}, but got none. Start the command on each node "
            "by torchrun or srun."
        )
    if (args.devices or 1) > 1 and not args.distributed:
        sys.argv += ["--started-by", str(os.getpid())]  # says to further processes of the Trainer what they are
    with redirect_stdout(sys.stderr):  # the result alone goes where the user may send it
        taken = {name: getattr(args, name) for name in inspect.signature(sweep).parameters if name in args}
        found = sweep(**taken, tell=partial(print, flush=True))
    result = asdict(found)
    return result, show(result)


def show(result: dict[str, Any]) -> str:
    """Format the result as text."""
    before = f", {result['before']} before" if result["before"] else ""
    n = len(result["evaluated"])
    rows = [f"Evaluated {n} checkpoint{'' if n == 1 else 's'}{before}, in {result['folder']}."]
    rows += [f"Skipped {name}: {why}" for name, why in result["skipped"].items()]
    return "\n".join(rows)
