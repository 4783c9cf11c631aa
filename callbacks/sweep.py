# SPDX-License-Identifier: Apache-2.0
"""A sweep: evaluates every checkpoint of a run, as if its Trainer had had the monitors."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from genmonitor._io import atomic_write
from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.callbacks.checkpoint_files import (
    Checkpoint,
    WeightAveraging,
    checkpoint_loaded,
    find_files,
    in_order,
    look_at,
    run_of,
)
from genmonitor.callbacks.circumstances import processes_of
from genmonitor.callbacks.pixel_clusters import PixelClusterMonitor
from genmonitor.callbacks.training_setup import Setup, make_setup, placed, run_at_start, settings_of
from genmonitor.callbacks.validation_samples import ValidationSamples
from genmonitor.evaluation.evaluator import SettingsChangedError, check_same_settings, reading_state
from genmonitor.evaluation.results import History
from genmonitor.images.sampler import clear_samples
from genmonitor.loggers.publisher import finish_evaluations
from genmonitor.monitoring.options import MAX_FAILURES
from genmonitor.report.files import FOLDER
from genmonitor.report.run import MonitorRun, read_run


@dataclass
class SweepResult:
    """Result of a sweep.

    Attributes:
        folder: Folder of the report and the other files.
        histories: Records of all evaluations, by prefix of the monitor.
        evaluated: Names of the checkpoints that were evaluated this time.
        before: Number of moments of the run that earlier sweeps evaluated.
        skipped: Reasons why checkpoints could not be evaluated, by name.
    """

    folder: Path
    histories: dict[str, History]
    before: int
    evaluated: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def sweep(
    run: str | Path | Sequence[str | Path],
    setup: str | Callable[[], Any],
    *,
    out: str | Path | None = None,
    device: str | None = None,
    tell: Callable[[str], Any] = print,
    **settings: Any,
) -> SweepResult:
    """Evaluate the checkpoints of a run, in their order, as if its Trainer had had the monitors.

    The curves, the report and TensorBoard's files are those of such a run, to the last bit on the same machine; only
    `images_seen` is missing. A sweep that is stopped or killed keeps its evaluations, and the next one continues from
    there. A checkpoint that cannot be evaluated is reported and skipped.

    Checkpoints must determine the module. Anything that changes during training and is not in a `state_dict` is as
    `setup` makes it, unless `on_load_checkpoint` sets it. A monitor that compares the model with its start
    (`DisagreementMonitor`) uses the module from `setup` for that.

    Args:
        run: Folder of a run, from which all files `*.ckpt` are taken, also in subfolders; or checkpoints.
        setup: Function without arguments that returns (trainer, module, data), (module, data) or (module, data,
            monitor), or its location "FILE.py:FUNCTION". Data are a LightningDataModule, a loader, or a list of a
            training and a validation loader. Monitors are those of the trainer and those returned; if there are none,
            `PixelClusterMonitor()`. The trainer's precision, limits, validation schedule and loggers that write no
            files are used.
        out: Folder to write into; None for that of the run.
        device: Device to evaluate on, for example "cpu" or "cuda:1"; None for the kind of device of the training.
        tell: Function that gets a line at the start and after each checkpoint.
        **settings: Settings of the Trainer that evaluates, such as `devices` and `strategy`. By default it runs in the
            processes that torchrun or Slurm started, else in one.

    Raises:
        FileNotFoundError: If there is no such run.
        ValueError: If there are no checkpoints, none could be evaluated, or the folder has other evaluations.

    Example:
        >>> sweep("lightning_logs/version_3", "train.py:build", devices=2)  # doctest: +SKIP
    """
    places = [Path(place) for place in ([run] if isinstance(run, (str, Path)) else run)]
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"Expected the folder of a run, or checkpoints, but there is no {place}.")
    settings = placed(device) | settings
    folder = (run_of(places) if out is None else Path(out)).resolve()
    return sweep_of(make_setup(setup), places, folder, rank_zero_only(tell), **settings)


def sweep_of(
    made: Setup, places: Sequence[Path], folder: Path, tell: Callable[[str], Any], **settings: Any
) -> SweepResult:
    """Evaluate checkpoints with a setup that is made, see `sweep`.

    Args:
        made: Setup with module, data and monitors.
        places: Checkpoints, and folders to search for checkpoints.
        folder: Folder to write into.
        tell: Function that gets lines.
        settings: Settings of the Trainer, which override those of the one that trained.
    """
    monitors = made.monitors or [PixelClusterMonitor()]
    if any(isinstance(monitor.sampler, ValidationSamples) for monitor in monitors):
        raise ValueError("Expected monitors that draw samples: those that validation drew are in no checkpoint.")
    state = SweepState(folder / FOLDER, monitors)
    result = SweepResult(folder, {}, len(state.moments))
    evaluations = _Evaluations(monitors, state, result, tell)
    checkpoints = new_checkpoints(places, state, evaluations.skip)
    if checkpoints:
        count = "1 checkpoint" if len(checkpoints) == 1 else f"{len(checkpoints)} checkpoints"
        tell(f"{count} to evaluate; first reading the real images and fitting the monitors.")
        reuse_run(run_of(places) / FOLDER, monitors)
        averaging = WeightAveraging() if checkpoints[0].averaged else None
        callbacks = [*monitors, *([averaging] if averaging else [])]
        places_of_files = {"logger": _loggers(made.trainer, folder), "default_root_dir": str(folder)}
        options = settings_of(made.trainer) | places_of_files | settings
        run_at_start(made.module, made.data, partial(evaluations.run, checkpoints, averaging), callbacks, **options)
    if not state.moments:
        why = "".join(f" {name}: {reason}." for name, reason in [*result.skipped.items()][:1])
        raise ValueError(f"Expected checkpoints (*.ckpt) that can be evaluated, but {places[0]} has none.{why}")
    result.histories = {monitor.prefix: monitor.history for monitor in monitors}
    return result


@dataclass
class _Evaluations:
    """Evaluates checkpoints inside a Trainer. Every process does the same; only rank zero prints and writes."""

    monitors: list[GenerativeMonitor]
    state: SweepState
    result: SweepResult
    tell: Callable[[str], Any]

    def skip(self, path: Path, why: str) -> None:
        """Report a checkpoint that cannot be evaluated."""
        self.result.skipped[path.name] = why
        self.tell(f"{path.name} is skipped: {why}")

    def run(
        self, checkpoints: list[Checkpoint], averaging: WeightAveraging | None, trainer: Any, pl_module: Any
    ) -> None:
        """Evaluate checkpoints one after another; a sweep that is stopped keeps the finished ones."""
        comm = processes_of(trainer)
        checkpoints = comm.broadcast(checkpoints)  # processes may have looked at different times
        for number, checkpoint in enumerate(checkpoints, 1):
            name = checkpoint.path.name
            succeeded = self._evaluate(checkpoint.path, averaging, trainer, pl_module)
            if comm.any_true(trainer.received_sigterm):  # Lightning only notes it
                raise SystemExit(128 + signal.SIGTERM)
            if succeeded:
                self.state.save(checkpoint.moment, writes=comm.rank == 0)
                self.result.evaluated.append(name)
                about = f"{number} of {len(checkpoints)}: {name}, step {checkpoint.progress.step}"
                self.tell("\n".join([about, *(monitor.publisher.message for monitor in self.monitors)]))
            elif name not in self.result.skipped:
                self.skip(checkpoint.path, "its evaluation failed; see the warning")
            for monitor in self.monitors:
                if monitor.failures.switched_off:
                    raise ValueError(
                        f"{MAX_FAILURES} evaluations of {monitor.prefix} in a row failed, the last of {name}."
                    )

    def _evaluate(self, path: Path, averaging: WeightAveraging | None, trainer: Any, pl_module: Any) -> bool:
        """Evaluate a checkpoint; return True if a monitor succeeded."""
        comm, records = processes_of(trainer), []
        try:
            with ExitStack() as stack:
                with comm.all_ranks_or_none():
                    stack.enter_context(checkpoint_loaded(path, trainer, pl_module, averaging))
                for monitor in self.monitors:
                    monitor.images_seen = None  # unknown from checkpoints
                    records.append(monitor.evaluate(trainer, pl_module))
            with comm.all_ranks_or_none():
                if comm.rank == 0:
                    finish_evaluations(monitor.publisher for monitor in self.monitors)
        except Exception as error:
            self.skip(path, f"{type(error).__name__}: {error}")
        finally:
            clear_samples(trainer)
        return any(record is not None for record in records)


def _loggers(trainer: Trainer | None, folder: Path) -> list[Logger]:
    """Return loggers that write into a folder, and those of the training that write elsewhere."""
    given = [None] if trainer is None else trainer.loggers
    if not given:
        return []
    # CSVLogger would remove the files of the training
    others = [logger for logger in given if not isinstance(logger, (type(None), TensorBoardLogger, CSVLogger))]
    return [TensorBoardLogger(folder.parent, folder.name, version="", default_hp_metric=False), *others]


def reuse_run(run: Path, monitors: Sequence[GenerativeMonitor]) -> None:
    """Let monitors with the same settings as those of the run keep its fixed values, such as its regions."""
    for monitor in monitors:
        path = run / f"{monitor.prefix}_run.json"
        manifest = MonitorRun.read(path).manifest if path.is_file() else {}
        if manifest.get("settings") == json.loads(json.dumps(monitor.evaluator.settings.to_manifest())):
            monitor.evaluator.processors = manifest.get("processors")
            monitor.evaluator.reuse(manifest, run)


class SweepState:
    """Evaluated moments, and the state of the monitors after the last one.

    Args:
        folder: Folder that monitors write to.
        monitors: Monitors of the sweep.

    Attributes:
        moments: Evaluated moments, see `Checkpoint.moment`.

    Raises:
        ValueError: If the folder holds the evaluations of a training, or of a sweep with other settings.
    """

    def __init__(self, folder: Path, monitors: Sequence[GenerativeMonitor]) -> None:
        self._path, self._monitors = folder / "sweep.pt", monitors
        self.moments: list[int] = []
        if self._path.is_file():
            self._load()
            return
        taken = {run.prefix for run in read_run(folder).monitors} & {monitor.prefix for monitor in monitors}
        if taken:
            raise ValueError(
                f"Expected a folder without evaluations, but {folder} has those that a training's monitor wrote under "
                f"{', '.join(sorted(taken))}. Give another folder with --out."
            )

    @property
    def last(self) -> int:
        """Last moment that was evaluated, -1 before the first."""
        return max(self.moments, default=-1)

    def save(self, moment: int, writes: bool = True) -> None:
        """Record that a moment is evaluated, also in the file if this process writes it."""
        self.moments.append(moment)
        if not writes:
            return
        monitors = {monitor.state_key: monitor.state_dict() for monitor in self._monitors}
        content = io.BytesIO()
        torch.save({"moments": self.moments, "monitors": monitors}, content)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, content.getvalue())

    def _load(self) -> None:
        remedy = f"Give another folder with --out, or remove {self._path} and the files next to it to start over."
        try:
            saved = torch.load(self._path, map_location="cpu", weights_only=True)
            states, moments = saved["monitors"], list(saved["moments"])
        except Exception as error:
            raise ValueError(f"Could not read the sweep's progress: {error}. {remedy}") from error
        mine = {monitor.state_key: monitor for monitor in self._monitors}
        if mine.keys() != states.keys():
            raise ValueError(
                f"Expected the same monitors as in the sweep so far, {', '.join(states)}, but got others. {remedy}"
            )
        for name, monitor in mine.items():
            try:
                with reading_state(f"{name} in {self._path}"):
                    check_same_settings(monitor.sampler.settings(), states[name]["sampler"])
                    check_same_settings(monitor.evaluator.comparable_settings(), states[name]["evaluator"]["settings"])
            except SettingsChangedError as error:
                raise ValueError(f"The sweep so far used a different {', '.join(error.names)}. {remedy}") from error
            monitor.load_state_dict(states[name])
        self.moments = moments


def new_checkpoints(places: Sequence[Path], state: SweepState, skip: Callable[[Path, str], None]) -> list[Checkpoint]:
    """Return the checkpoints that a sweep has not evaluated, in the order of the training.

    Args:
        places: Files, and folders to search with their subfolders.
        state: State with the moments that were evaluated.
        skip: Function of a file and the reason why it cannot be evaluated.
    """
    found = []
    for path in find_files(places):
        try:
            found.append(look_at(path))
        except (OSError, ValueError) as error:
            skip(path, str(error))
    new = [checkpoint for checkpoint in in_order(found) if checkpoint.moment not in state.moments]
    for checkpoint in new:
        if checkpoint.moment < state.last:
            skip(checkpoint.path, "it is from before the last one that was evaluated, or was skipped then")
    return [checkpoint for checkpoint in new if checkpoint.moment > state.last]
