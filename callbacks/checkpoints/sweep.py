# SPDX-License-Identifier: Apache-2.0
"""A sweep: every checkpoint of a run through its monitors, as if they had been there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.callbacks.checkpoints.evaluating import CheckpointEvaluations, SweepResult
from genmonitor.callbacks.checkpoints.setup import CONFIG, Setup, make_setup, placed, run_at_start, settings_of
from genmonitor.callbacks.checkpoints.state import SweepState, new_checkpoints
from genmonitor.callbacks.integration.checkpoints import CheckpointWeights, run_of
from genmonitor.callbacks.pixel_clusters import PixelClusterMonitor
from genmonitor.callbacks.validation_samples import ValidationSamples
from genmonitor.report.files import FOLDER
from genmonitor.report.run import MonitorRun


def sweep(
    run: str | Path | Sequence[str | Path],
    setup: str | Callable[[], Any] | None = None,
    *,
    config: str | Path | None = None,
    script: str | Path | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    devices: int | None = None,
    num_nodes: int | None = None,
    strategy: str = "auto",
    tell: Callable[[str], Any] = print,
) -> SweepResult:
    """Evaluate the checkpoints of a run, in their order, as if its Trainer had had the monitors.

    The curves, the report and TensorBoard's files are those of such a run, to the last bit on the same machine. What is
    evaluated stays when a sweep is stopped or killed: the next one goes on from there. A checkpoint that cannot be
    evaluated is reported and skipped.

    The module must be what its checkpoints make it: what changes during training and is in no `state_dict` is as
    `setup` makes it, unless `on_load_checkpoint` sets it. A monitor that compares the model with its start
    (`DisagreementMonitor`) takes the module that `setup` makes for that.

    Args:
        run: the folder of a run, in which and below which all files `*.ckpt` are taken; or checkpoints.
        setup: a function without arguments that returns (trainer, module, data), (module, data) or (module, data,
            monitor), or where it is: "FILE.py:FUNCTION". Data are a LightningDataModule, a loader, or a list of a
            training and a validation loader. Monitors are those of the trainer and those returned; where there are
            none, `PixelClusterMonitor(diagnose_every=1)`. Of the trainer are taken its precision, its limits, when it
            validates, and its loggers that write no files.
        config: a file of Lightning's command line instead of `setup`; None for the config.yaml that it left in the
            folder of the run, if there is one.
        script: the script that trained with it, from whose folder its classes are imported.
        out: the folder to write into; None for that of the run.
        device: where to evaluate, for example "cpu" or "cuda:1"; None for the kind of device of the training.
        devices: of each node, which draw and measure together; `Trainer(devices=...)`. None for as many as torchrun or
            Slurm started, else one.
        num_nodes: the same of nodes.
        strategy: `Trainer(strategy=...)`.
        tell: takes a line at the start and after each checkpoint.

    Raises:
        FileNotFoundError: if there is no such run.
        ValueError: if there are no checkpoints, none could be evaluated, or the folder has other evaluations.

    Example:
        >>> sweep("lightning_logs/version_3", "train.py:build", devices=2)  # doctest: +SKIP
    """
    places = _existing([run] if isinstance(run, (str, Path)) else run)
    where, tell = placed(device, devices, num_nodes, strategy), rank_zero_only(tell)
    if setup is None and config is None and (run_of(places) / CONFIG).is_file():
        config = run_of(places) / CONFIG
    folder = (run_of(places) if out is None else Path(out)).resolve()
    return sweep_of(make_setup(setup, config, script), places, folder, tell, **where)


def sweep_of(
    made: Setup, places: Sequence[Path], folder: Path, tell: Callable[[str], Any], **settings: Any
) -> SweepResult:
    """Evaluate checkpoints with what is made: see `sweep`.

    Args:
        made: module, data and monitors.
        places: checkpoints, and folders to look for some.
        folder: to write into.
        tell: takes lines.
        settings: of the Trainer, over those of the one that trained.
    """
    if any(isinstance(monitor.sampler, ValidationSamples) for monitor in made.monitors):
        raise ValueError("Expected monitors that draw samples: those that validation drew are in no checkpoint.")
    made = replace(made, monitors=made.monitors or [PixelClusterMonitor(diagnose_every=1)])
    state = SweepState(folder / FOLDER, made.monitors)
    result = SweepResult(folder, {}, len(state.moments))
    evaluated = CheckpointEvaluations(made.monitors, state, result, tell)
    if found := new_checkpoints(places, state, evaluated.skip):
        count = "1 checkpoint" if len(found) == 1 else f"{len(found)} checkpoints"
        tell(f"{count} to evaluate; first reading the real images and fitting the monitors.")
        reuse_run(run_of(places) / FOLDER, made.monitors)
        evaluated.weights = CheckpointWeights(found[0].averaged)
        run_at_start(
            made.module,
            made.data,
            partial(evaluated.run, found),
            [*made.monitors, *evaluated.weights.callbacks],
            logger=_loggers(made.trainer, folder),
            default_root_dir=str(folder),
            **settings_of(made.trainer) | settings,
        )
    if not state.moments:
        why = "".join(f" {name}: {reason}." for name, reason in [*result.skipped.items()][:1])
        raise ValueError(f"Expected checkpoints (*.ckpt) that can be evaluated, but {places[0]} has none.{why}")
    result.histories = {monitor.prefix: monitor.history for monitor in made.monitors}
    return result


def _existing(places: Sequence[str | Path]) -> list[Path]:
    """Return the places of checkpoints as paths; refuse those that are not there."""
    paths = [Path(place) for place in places]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"Expected the folder of a run, or checkpoints, but there is no {path}.")
    return paths


def _loggers(trainer: Trainer | None, folder: Path) -> list[Logger]:
    """Return loggers that write into a folder, and those of the training that write elsewhere."""
    given = [None] if trainer is None else trainer.loggers
    if not given:
        return []
    # CSVLogger would remove what the training wrote
    others = [logger for logger in given if not isinstance(logger, (type(None), TensorBoardLogger, CSVLogger))]
    return [TensorBoardLogger(folder.parent, folder.name, version="", default_hp_metric=False), *others]


def reuse_run(run: Path, monitors: Sequence[GenerativeMonitor]) -> None:
    """Let monitors of the same settings as the run's keep what it fixed, such as its regions."""
    for monitor in monitors:
        path = run / f"{monitor.prefix}_run.json"
        manifest = MonitorRun.read(path).manifest if path.is_file() else {}
        if manifest.get("settings") == json.loads(json.dumps(monitor.evaluator.settings.to_manifest())):
            monitor.evaluator.processors = manifest.get("processors")
            monitor.evaluator.reuse(manifest, run)
