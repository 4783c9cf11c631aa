# SPDX-License-Identifier: Apache-2.0
"""The Trainers that modules of the zoo meet, and which of them meet which."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _helpers.modules import ema_averaging
from _helpers.zoo.shape import Shape
from lightning.pytorch.callbacks import (
    EarlyStopping,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger

PER_MODULE = 4


@dataclass
class Counts:
    """What a run without a monitor went through."""

    batches: int = 0
    epochs: int = 0
    validations: int = 0
    after: int = 0
    """Batches after the last validation or, where nothing is validated, after the last epoch."""

    def epoch_ends(self) -> int:
        return (self.validations or self.epochs) + (self.after > 0)  # the last weights are evaluated in any case


def none(*args: Any) -> list[Any]:
    return []


@dataclass(frozen=True)
class Setting:
    """A Trainer, with or without a monitor."""

    trainer: dict[str, Any] = field(default_factory=dict)
    callbacks: Callable[[], list[Any]] = none
    """Those of both runs."""
    waiting: Callable[[Any, str], list[Any]] = none
    """Those that wait for a key of the monitor in a folder, which a run without it lacks."""
    logger: Callable[[Any], Any] = lambda folder: False
    monitor: dict[str, Any] = field(default_factory=dict)
    evaluations: Callable[[Counts], int] = Counts.epoch_ends
    by_hand: bool = True
    """Whether it goes with a module that optimizes by hand."""
    validates: bool = True
    plateau: bool = False
    """Whether a learning rate waits for a key of the monitor."""
    resumes: bool = False
    data_module: bool = False
    prefixes: tuple[str, ...] = ("",)

    def suits(self, shape: Shape) -> bool:
        """Return True if Lightning takes the module with it."""
        if shape.manual and not self.by_hand:
            return False
        return not shape.own_data or (self.validates and not self.data_module)


def stop(folder, key):
    return [EarlyStopping(key, mode="max", patience=100)]


def keep_best(folder, key):
    return [ModelCheckpoint(folder / "best", monitor=key, mode="max")]


def every_third(counts):
    return 1 + counts.batches // 3 + (counts.batches % 3 > 0)


SETTINGS = {
    "as it comes": Setting(),
    "bf16-mixed": Setting({"precision": "bf16-mixed"}),
    "64-true": Setting({"precision": "64-true"}),
    "accumulated gradients": Setting({"accumulate_grad_batches": 2}, by_hand=False),
    "limit_val_batches=0": Setting({"limit_val_batches": 0}),
    "val_check_interval=0.5": Setting({"val_check_interval": 0.5}),
    "check_val_every_n_epoch=2": Setting({"check_val_every_n_epoch": 2}),
    "no validation": Setting(validates=False),
    "gradient_clip_val": Setting({"gradient_clip_val": 0.5}, by_hand=False),
    "overfit_batches=2": Setting({"overfit_batches": 2}),
    "max_steps=11": Setting({"max_steps": 11, "max_epochs": -1}),
    "every_n_train_steps=3": Setting(monitor={"every_n_train_steps": 3}, evaluations=every_third),
    "EarlyStopping": Setting(waiting=stop),
    "ModelCheckpoint": Setting(waiting=keep_best),
    "ReduceLROnPlateau": Setting(plateau=True, by_hand=False),
    "stochastic averaging": Setting(
        {"max_epochs": 3}, lambda: [StochasticWeightAveraging(1e-3, swa_epoch_start=1)], by_hand=False
    ),
    "averaged weights": Setting(callbacks=lambda: [ema_averaging(decay=0.9)]),
    "two prefixes": Setting(prefixes=("", "_2")),
    "loaders every epoch": Setting({"reload_dataloaders_every_n_epochs": 1}),
    "limit_train_batches=0.5": Setting({"limit_train_batches": 0.5}),
    "barebones": Setting({"barebones": True}),
    "CSVLogger": Setting(logger=CSVLogger),
    "resumed": Setting(resumes=True),
    "inference_mode=False": Setting({"inference_mode": False}),
    "data module": Setting(data_module=True),
    "deterministic": Setting({"deterministic": True}),
    "detect_anomaly": Setting({"detect_anomaly": True}),
}


def covering(shapes: dict[str, Shape]) -> list[tuple[str, str, int]]:
    """Return which module meets which setting, and as its how manieth: as many for each, all about as often."""
    names, met, out = list(SETTINGS), dict.fromkeys(SETTINGS, 0), []
    for index, (name, shape) in enumerate(shapes.items()):
        order = names[index % len(names) :] + names[: index % len(names)]
        suited = sorted((one for one in order if SETTINGS[one].suits(shape)), key=lambda one: met[one])
        for number, setting in enumerate(suited[:PER_MODULE]):
            met[setting] += 1
            out.append((name, setting, number))
    return out
