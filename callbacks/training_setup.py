# SPDX-License-Identifier: Apache-2.0
"""Setup of a training by the user's code, in a Trainer that takes no step."""

from __future__ import annotations

import logging
import os
import pkgutil
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, LambdaCallback
from lightning.pytorch.utilities.exceptions import SIGTERMException

from genmonitor.callbacks.base import GenerativeMonitor, monitors
from genmonitor.training_state.ownership import in_library

RETURNS = "(trainer, module, data), (module, data) or (module, data, monitor)"
SETUP = (
    "Give --setup FILE.py:FUNCTION, or package.module:FUNCTION for a file in a package: a function without arguments "
    "that returns module, data and monitor, in a file that trains only under `if __name__ == '__main__':`."
)


@dataclass(frozen=True)
class Setup:
    """Module and data of a training, with monitors and Trainer if known.

    Attributes:
        module: The LightningModule.
        data: A LightningDataModule, a loader, or a list of them; None if the module has its own.
        monitors: Monitors of the Trainer, or given separately.
        trainer: Trainer; None if unknown.
    """

    module: LightningModule
    data: Any
    monitors: list[GenerativeMonitor]
    trainer: Trainer | None = None

    @classmethod
    def of(cls, made: Any) -> Setup:
        """Split the result of a user's function into the parts of `RETURNS`, in that order.

        Raises:
            ValueError: If it returned something else.
        """
        parts = list(made) if isinstance(made, tuple) else [made]
        trainer = parts.pop(0) if parts and isinstance(parts[0], Trainer) else None
        module, data, given = (*parts, *[None] * 3)[:3]
        alone = given if isinstance(given, list) else [] if given is None else [given]
        known = all(isinstance(monitor, GenerativeMonitor) for monitor in alone)
        if len(parts) > 3 or not known or not isinstance(module, LightningModule) or isinstance(data, LightningModule):
            names = ", ".join(type(part).__name__ for part in (made if isinstance(made, tuple) else [made]))
            raise ValueError(f"Expected the setup to return {RETURNS}, but got ({names}).")
        found = [] if trainer is None else monitors(trainer)
        return cls(module, data, [*alone, *(monitor for monitor in found if monitor not in alone)], trainer)


def make_setup(setup: str | Callable[[], Any]) -> Setup:
    """Make the setup of a training.

    Args:
        setup: Function without arguments that returns it, or its location "FILE.py:FUNCTION".

    Raises:
        ValueError: If there is no such function, it raises an error or returns something else.
    """
    sys.path.insert(0, str(Path.cwd()))
    function = imported(setup) if isinstance(setup, str) else setup
    with without_advice(), _named(f"Expected the setup to return {RETURNS}, but it raised"):
        made = function()
    return Setup.of(made)


def imported(where: str) -> Any:
    """Import "package.module:name", or "path/to/file.py:name" with the file's folder on the path, as for a script.

    Raises:
        ValueError: If there is no such function, or importing it raises an error or ends the program.
    """
    place, _, name = where.rpartition(":")
    with _named(f"Expected FILE.py:NAME or package.module:NAME, but importing {where} raised"):
        if place.endswith(".py"):
            found = attrgetter(name)(_module_of(Path(place).resolve()))
        else:
            found = pkgutil.resolve_name(f"{place}:{name}")
    if not callable(found):
        raise ValueError(f"Expected {where} to be a function, but it is {type(found).__name__}. {SETUP}")
    return found


def _module_of(file: Path) -> ModuleType:
    """Return the module of exactly this file, by its own name if no other module has it, so that it can be pickled."""
    sys.path.insert(0, str(file.parent))
    names = file.stem, str(file)
    for known in map(sys.modules.get, names):
        if known is not None and getattr(known, "__file__", None) == str(file):
            return known
    name = next(name for name in names if name not in sys.modules)
    spec = spec_from_file_location(name, file)
    assert spec is not None  # of a name that ends in .py
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _named(expected: str) -> Iterator[None]:
    """Turn an error of the user's code, and its `sys.exit`, into a ValueError with the last line of that code."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM:
            raise
        lines = [at for at in traceback.extract_tb(error.__traceback__) if _is_users(at.filename)]
        place = f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""
        raise ValueError(f"{expected} {type(error).__name__}: {error}{place}. {SETUP}") from error


def _is_users(file: str) -> bool:
    return file != __file__ and Path(file).is_file() and not in_library(file)


def run_at_start(
    module: Any,
    data: Any,
    body: Callable[[Trainer, LightningModule], Any],
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> None:
    """Call a function where training would begin, when data, module and other callbacks are set up.

    Args:
        module: A LightningModule.
        data: A LightningDataModule, a loader, a list of a training and a validation loader, or None if the module has
            its own loaders.
        body: Function of the Trainer and the module.
        callbacks: Callbacks of the Trainer, which come before `body`.
        settings: Settings of the Trainer, on one device unless these say otherwise.
    """

    def begin(trainer: Trainer, pl_module: LightningModule) -> None:
        body(trainer, pl_module)
        trainer.should_stop = True

    defaults: dict[str, Any] = {"devices": 1, "max_epochs": 1, "logger": False}
    with without_advice():
        trainer = Trainer(
            **(defaults | settings),
            num_sanity_val_steps=0,
            callbacks=[*callbacks, LambdaCallback(on_train_start=begin)],
            use_distributed_sampler=False,  # no loader is run; an epoch has the batches of one process
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        given = data if isinstance(data, (list, tuple)) else [data]
        if data is None or hasattr(data, "prepare_data"):
            fit = partial(trainer.fit, module, datamodule=data)
        else:
            fit = partial(trainer.fit, module, *given)
        try:
            fit()
        except SIGTERMException:
            raise SystemExit(128 + signal.SIGTERM) from None


def settings_of(trainer: Trainer | None) -> dict[str, Any]:
    """Return the settings of the Trainer that trained on which an evaluation may depend, if it is known."""
    if trainer is None:
        return {}
    limits = ("limit_train_batches", "limit_val_batches", "overfit_batches", "max_epochs", "max_steps")
    steps = ("val_check_interval", "check_val_every_n_epoch", "accumulate_grad_batches", "precision")
    found = {name: getattr(trainer, name) for name in (*limits, *steps)}
    kind = type(trainer.accelerator).__name__.removesuffix("Accelerator").lower()
    known = {"accelerator": kind} if kind in ("cpu", "cuda", "mps") else {}
    return {name: value for name, value in found.items() if value is not None} | known


def placed(device: str | None) -> dict[str, Any]:
    """Return the settings of a Trainer for device and processes, such as those that torchrun or srun started.

    Args:
        device: Device, such as "cpu" or "cuda:1"; None for that of the training.

    Example:
        >>> placed("cuda:1")
        {'accelerator': 'cuda', 'devices': [1], 'num_nodes': 1}
    """
    by_slurm = "TORCHELASTIC_RUN_ID" not in os.environ and int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1
    names = ("SLURM_NTASKS_PER_NODE", "SLURM_NNODES") if by_slurm else ("LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")
    started, nodes = (int(os.environ.get(name, 1)) for name in names)
    settings: dict[str, Any] = {"devices": started, "num_nodes": nodes}
    if device is None:
        return settings
    kind, _, number = device.partition(":")
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", device) or (number and started > 1):
        raise ValueError(
            f"Expected `device` to be cpu, mps, cuda or, for one process, cuda:0, cuda:1 and so on, but got {device!r}."
        )
    return {"accelerator": kind, **settings, **({"devices": [int(number)]} if number else {})}


@contextmanager
def without_advice() -> Iterator[None]:
    """Silence messages of Lightning about a training that does not take place."""
    names = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning")
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=PossibleUserWarning)
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # from within Lightning
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
