# SPDX-License-Identifier: Apache-2.0
"""A Trainer that sets everything up as for training and takes no step."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

TAKEN_OVER = (
    *("precision", "limit_train_batches", "limit_val_batches", "overfit_batches", "val_check_interval"),
    *("check_val_every_n_epoch", "accumulate_grad_batches", "max_epochs", "max_steps"),
)
"""What an evaluation may depend on of the Trainer that trained."""

KINDS = ("cpu", "cuda", "mps")


class _AtStart(Callback):
    """Calls a function when training would begin, and stops before the first step."""

    def __init__(self, body: Callable[[Trainer, LightningModule], Any]) -> None:
        self.body = body

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop = True
        self.body(trainer, pl_module)


def run_at_start(
    module: Any,
    data: Any,
    body: Callable[[Trainer, LightningModule], Any],
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> None:
    """Call a function where training would begin: data, module and the other callbacks are set up then.

    Args:
        module: a LightningModule.
        data: a LightningDataModule, a loader, a list of a training and a validation loader, or None where the module
            has loaders of its own.
        body: takes the Trainer and the module.
        callbacks: of the Trainer, before `body`.
        settings: of the Trainer, on one device unless these say otherwise.
    """
    defaults: dict[str, Any] = {"devices": 1, "max_epochs": 1, "logger": False}
    with without_advice():
        trainer = Trainer(
            **(defaults | settings),
            num_sanity_val_steps=0,
            callbacks=[*callbacks, _AtStart(body)],
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        if isinstance(data, (list, tuple)):
            trainer.fit(module, *data)
        elif data is None or hasattr(data, "prepare_data"):
            trainer.fit(module, datamodule=data)
        else:
            trainer.fit(module, data)


def settings_of(trainer: Trainer | None) -> dict[str, Any]:
    """Return what `run_at_start` should take over of the Trainer that trained, if it is known."""
    if trainer is None:
        return {}
    found = {name: getattr(trainer, name) for name in TAKEN_OVER}
    kind = type(trainer.accelerator).__name__.removesuffix("Accelerator").lower()
    known = {"accelerator": kind} if kind in KINDS else {}
    return {name: value for name, value in found.items() if value is not None} | known


def on_device(device: str | None) -> dict[str, Any]:
    """Return the settings of a Trainer on a device, none for None.

    Example:
        >>> on_device("cuda:1"), on_device("cpu"), on_device(None)
        ({'accelerator': 'cuda', 'devices': [1]}, {'accelerator': 'cpu', 'devices': 1}, {})
    """
    if device is None:
        return {}
    kind, _, index = device.partition(":")
    if kind not in KINDS or (index and not index.isdigit()):
        raise ValueError(f"Expected `device` to be cpu, cuda, cuda:0, … or mps, but got {device!r}.")
    return {"accelerator": kind, "devices": [int(index)] if index and kind == "cuda" else 1}


def spread(settings: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Give processes with these settings a GPU each, as far as there are some and none was chosen."""
    gpus = torch.cuda.device_count()
    chosen = settings.get("accelerator", "cuda") != "cuda" or settings.get("devices", 1) != 1
    return dict(settings) if chosen or not gpus else dict(settings) | {"devices": [number % gpus]}


@contextmanager
def without_advice() -> Iterator[None]:
    """Keep Lightning from telling about a training that does not take place."""
    levels = {logger: logger.level for logger in map(logging.getLogger, ("lightning.pytorch", "pytorch_lightning"))}
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
