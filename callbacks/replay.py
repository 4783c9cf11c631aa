# SPDX-License-Identifier: Apache-2.0
"""Replay of a logged evaluation: a sweep of one checkpoint, compared with the file of its run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from genmonitor._io import read_json
from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.callbacks.checkpoint_files import read_checkpoint
from genmonitor.callbacks.sweep import reuse_run, sweep_of
from genmonitor.callbacks.training_setup import SETUP, make_setup
from genmonitor.report.files import FOLDER
from genmonitor.report.run import MonitorRun

NEEDED = {"monitor", "settings", "threads", "precision", "processes", "device", "validation", "global_step"}
"""Parts of a run that a replay needs, and that a comparison or a loop without a Trainer lacks."""


def replay(path: Path, checkpoint: Path, setup: str | Callable[[], Any]) -> dict[str, float]:
    """Measure the values of an evaluation again, by a sweep of its checkpoint.

    Args:
        path: File of the run, such as cms_run.json, with the files that it names beside it.
        checkpoint: Checkpoint of the evaluated moment; only tensors and plain Python are loaded from it.
        setup: Same as in `sweep`, with the monitors of the run.

    Returns:
        Values of the samples drawn again, by key.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If file and checkpoint do not belong together, or the checkpoint cannot be evaluated.
    """
    logged = logged_evaluation(path, checkpoint)
    made = make_setup(setup)
    _check_monitor(made.monitors, logged)
    for monitor in made.monitors:
        monitor.sampler.batch_size = logged["sample_batch_size"]
        monitor.evaluator.repeat(logged["values"])
    threads = torch.get_num_threads()
    torch.set_num_threads(logged["threads"])  # the order of a sum depends on them
    try:
        with TemporaryDirectory() as folder:
            reuse_run(path.parent, made.monitors)
            device = "cpu" if logged["device"] == "cpu" else "auto"
            validated = 1.0 if logged["validation"] else 0
            settings = {"accelerator": device, "precision": logged["precision"], "limit_val_batches": validated}
            found = sweep_of(made, [checkpoint], Path(folder), lambda text: None, **settings)
            _check_real_images(path.parent, Path(folder) / FOLDER, logged)
    finally:
        torch.set_num_threads(threads)
    record = found.histories[logged["prefix"]][-1]
    return {key: value for key, value in record.items() if key in logged["repeatable"]}


def logged_evaluation(path: Path, checkpoint: Path) -> dict[str, Any]:
    """Return the manifest of the evaluation at the moment of a checkpoint, with its "repeatable" values.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not the run of a training, or has no evaluation at that moment.
    """
    run = MonitorRun.read(path)
    lacking = sorted(NEEDED - run.manifest.keys())
    if lacking:
        raise ValueError(f"Expected the run of a training, but {path} lacks {', '.join(lacking)}.")
    step = read_checkpoint(checkpoint)["global_step"]
    return {**run.manifest_at(step), "repeatable": run.repeatable(step)}


def _check_monitor(monitors: list[GenerativeMonitor], logged: dict[str, Any]) -> None:
    """Refuse a monitor other than that of the run."""
    monitor = next((monitor for monitor in monitors if monitor.prefix == logged["prefix"]), None)
    if monitor is None:
        raise ValueError(f"Expected the setup to return the monitor of {logged['prefix']} too, but got none. {SETUP}")
    found: dict[str, Any] = {"monitor": type(monitor).__name__}
    if found["monitor"] == logged["monitor"]:  # another kind has other settings
        found |= monitor.evaluator.comparable_settings()
    known = {**logged, **logged["settings"]}
    other = {name: value for name, value in found.items() if value != known.get(name)}
    if other:
        wanted = ", ".join(f"{name}={known.get(name)!r}" for name in other)
        given = ", ".join(f"{name}={value!r}" for name, value in other.items())
        raise ValueError(f"Expected the monitor of the run, with {wanted}, but got {given}. {SETUP}")


def _check_real_images(run: Path, again: Path, logged: dict[str, Any]) -> None:
    """Refuse real images other than those of the run."""
    name = logged.get("real")
    then, now = (read_json(folder / name) if name else None for folder in (run, again))
    if then and now and then["sha256"] != now["sha256"]:
        raise ValueError(
            f"The real images are not those of the run, which took {len(then['indices'])} of {then['from']}: their "
            "values differ. Give the same data."
        )
