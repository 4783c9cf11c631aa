# SPDX-License-Identifier: Apache-2.0
"""Parts of a Trainer that an evaluation needs: processes, progress bars, folder, and circumstances of the values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException
from tqdm.auto import tqdm

from genmonitor._io import Progress
from genmonitor._manifest import where_defined
from genmonitor._stop import StopEvaluation, check_stop, stops_when
from genmonitor.callbacks.compat import attributes_of
from genmonitor.distributed import Collective, DistributedProcesses, SingleProcess
from genmonitor.monitoring.base import Monitor
from genmonitor.training_state.rng import State


def processes_of(trainer: pl.Trainer) -> Collective:
    """Return the processes of a Trainer whose strategy is set up."""
    return DistributedProcesses() if trainer.world_size > 1 else SingleProcess()


def trainer_progress(trainer: pl.Trainer, name: str) -> Progress:
    """Return labeled progress bars, shown if the Trainer shows one and the output is interactive."""
    shown = trainer.is_global_zero and trainer.progress_bar_callback is not None

    def progress(iterable: Iterable[Any], description: str) -> Iterator[Any]:
        # None shows the bar in a terminal or a notebook, but not in a file, where each step would be a line
        for part in tqdm(iterable, desc=f"{name}: {description}", leave=False, disable=None if shown else True):
            check_stop()
            yield part

    return progress


def told_to_stop(trainer: pl.Trainer) -> Callable[[], bool]:
    """Return a function that tells if the Trainer was told to stop since this call, by SIGTERM or `should_stop`."""
    before = trainer.should_stop  # after an early stop the last evaluation is due too
    return lambda: bool(trainer.received_sigterm or (trainer.should_stop and not before))


@contextmanager
def leaves_at_sigterm(trainer: pl.Trainer) -> Iterator[None]:
    """Leave the block at SIGTERM, as Lightning leaves a training; several processes first finish the block."""
    try:
        with stops_when(lambda: bool(trainer.received_sigterm), alone=trainer.world_size == 1):
            yield
    except StopEvaluation:
        raise SIGTERMException from None


def run_folder(trainer: pl.Trainer) -> Path:
    """Return the folder of the run, in which ModelCheckpoint has its own; the same on every process.

    It is absolute, independent of changes of the working directory.
    """
    folder = Path(trainer.default_root_dir)
    if trainer.loggers:
        logger = trainer.loggers[0]
        version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
        folder = Path(logger.save_dir or folder) / str(logger.name) / version
    return Path(trainer.strategy.broadcast(str(folder.absolute()), src=0))


def circumstances(trainer: pl.Trainer, pl_module: pl.LightningModule, weights: str) -> dict[str, Any]:
    """Return the classes of module and data, the weights and the hardware of an evaluation."""
    data = getattr(trainer, "datamodule", None)
    return {
        "weights": weights,
        "module": where_defined(type(pl_module)),
        "data": None if data is None else where_defined(type(data)),
        "current_epoch": trainer.current_epoch,
        "global_step": trainer.global_step,
        "validation": bool(trainer.enable_validation),
        "device": pl_module.device.type,
        "precision": str(trainer.precision),
        "processes": trainer.world_size,
        "threads": torch.get_num_threads(),
    }


def callbacks_with_state(trainer: pl.Trainer) -> tuple[dict[str, Any], dict[str, State]]:
    """Return the state of callbacks that sampling might change, by name: objects, or attribute getters and setters.

    For callbacks that keep weights or end a training it is their whole state. For the user's callbacks it is their
    attributes and the content of tensors, networks and containers among these, such as an average of the weights. Other
    objects may change by themselves, for example in a thread.
    """
    decide = [*trainer.checkpoint_callbacks, *trainer.early_stopping_callbacks]
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    names = [type(callback).__name__ for callback in callbacks]
    found: dict[str, Any] = {}
    states: dict[str, State] = {}
    for index, callback in enumerate(callbacks):
        name = names[index] if names.count(names[index]) == 1 else f"{names[index]} {index}"
        package = type(callback).__module__.partition(".")[0]
        own = package not in ("lightning", "pytorch_lightning") and not isinstance(callback, Monitor)
        works = any(isinstance(value, Thread) for value in vars(callback).values())
        if callback in decide:
            found[name] = callback
        elif own and not works:
            kinds = (torch.Tensor, torch.nn.Module, dict, list, set)
            found |= {f"{name}.{key}": value for key, value in vars(callback).items() if isinstance(value, kinds)}
            states[f"the attributes of {name}"] = attributes_of(callback)
    return found, states


def way_back(trainer: pl.Trainer) -> str:
    """Return advice for a training that cannot be restored, with its last checkpoint."""
    paths = [(getattr(x, "last_model_path", "") or x.best_model_path) for x in trainer.checkpoint_callbacks if x]  # type: ignore[attr-defined]
    saved = [path for path in paths if path]
    return f"Go back to the checkpoint {saved[-1]}." if saved else "Start again: there is no checkpoint to go back to."
