# SPDX-License-Identifier: Apache-2.0
"""`genmonitor replay`: a logged value, measured again."""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "manifest", metavar="MANIFEST", type=Path, help="…_evaluation_00012.json in a run's genmonitor folder"
    )
    parser.add_argument("--checkpoint", metavar="CKPT", type=Path, required=True, help="the checkpoint of that epoch")
    parser.add_argument(
        "--script",
        metavar="FILE.py",
        type=Path,
        help="the script that trained, where it is not found: looked for where it lies as seen from the manifest, then "
        "where it was",
    )
    parser.add_argument(
        "--setup",
        metavar="FILE.py:FUNCTION",
        help="a function without arguments that returns (module, data, monitor) as for training; only needed where "
        "they cannot be made from the classes that the manifest names and the hyperparameters in the checkpoint",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure again and compare with what was logged."""
    from genmonitor.callbacks.replay import measured, replay

    manifest = json.loads(args.manifest.read_text(encoding="utf-8"))
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")  # advice on training
        replayed = replay(args.manifest, args.checkpoint, args.setup, args.script)
    logged = measured(manifest["evaluation"])
    then = manifest["versions"]
    return {
        "values": {name: {"logged": logged.get(name), "replayed": value} for name, value in replayed.items()},
        "not_replayed": [name for name in logged if name not in replayed],
        "same": all(logged.get(name) == value for name, value in replayed.items()),
        "processes": manifest["processes"],
        "other_versions": {name: then[name] for name in then if version(name) != then[name]},
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning from telling about a training that does not take place."""
    levels = {logger: logger.level for logger in map(logging.getLogger, ("lightning.pytorch", "pytorch_lightning"))}
    for logger in levels:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def said(result: dict[str, Any]) -> str:
    """Say the result in words."""
    rows = [f"{'value':<22}{'logged':>24}{'replayed':>24}"]
    for name, value in result["values"].items():
        same = value["logged"] == value["replayed"]
        rows.append(f"{name:<22}{value['logged']!r:>24}{'the same' if same else repr(value['replayed']):>24}")
    differing = sum(value["logged"] != value["replayed"] for value in result["values"].values())
    rows += [
        "",
        "The same to the last bit." if result["same"] else f"{differing} of {len(result['values'])} values differ.",
    ]
    if not result["same"] and result["processes"] > 1:
        rows.append(
            f"The run had {result['processes']} processes, whose sums are in another order: last digits may differ."
        )
    if not result["same"] and result["other_versions"]:
        rows.append(f"Versions were others then: {result['other_versions']}.")
    if result["not_replayed"]:
        rows.append(f"Not replayed: {', '.join(result['not_replayed'])}. Give the monitor with --setup.")
    return "\n".join(rows)
