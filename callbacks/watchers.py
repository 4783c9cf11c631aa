# SPDX-License-Identifier: Apache-2.0
"""Values for callbacks and schedulers that rank weights: those of an evaluation, or a value that ranks last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import lightning.pytorch as pl
import torch

SCHEDULER = "A learning-rate scheduler"


class WatchedValues:
    """Values of a monitor in `trainer.callback_metrics`, without values of weights that were not evaluated.

    Lightning keeps a logged value until the next one. ModelCheckpoint would therefore rank an epoch without an
    evaluation by the value of the epoch before.

    Args:
        prefix: Prefix of the keys.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._values: dict[str, float] = {}
        self._made_at = -1
        self._are_shown: bool | None = None

    def start(self, trainer: pl.Trainer) -> None:
        """Begin a fit: give schedulers a key to wait for, since Lightning ends a run without one."""
        self._values, self._made_at, self._are_shown = {}, -1, None
        for name, config in waiting(trainer, self._prefix):
            if name == SCHEDULER and config.strict:  # another is only warned about
                trainer.callback_metrics.setdefault(str(config.monitor), _nothing(trainer, str(config.monitor)))

    def take(self, values: Mapping[str, float], batches: int) -> None:
        """Take the values of an evaluation, by key without prefix, made after a number of training batches."""
        before = self._values
        new = {f"{self._prefix}/{key}": float(value) for key, value in values.items()}
        self._values = dict.fromkeys(before, math.nan) | new
        self._made_at, self._are_shown = batches, None

    def show(self, trainer: pl.Trainer, since: int, device: torch.device | str = "cpu") -> None:
        """Publish the values if they were made after more training batches than `since`, else that there are none."""
        shown = self._made_at > since
        if shown == self._are_shown:
            return
        self._are_shown = shown
        metrics = trainer.callback_metrics
        for key in {**self._values, **dict.fromkeys(self._watched(trainer))}:
            value = self._values.get(key, math.nan) if shown else math.nan
            metrics[key] = _nothing(trainer, key) if math.isnan(value) else torch.tensor(value, device=device)

    def notes(self, trainer: pl.Trainer) -> list[str]:
        """Return a note on each watched key of this monitor that has no value after an evaluation."""
        return [
            f"{key!r} is monitored, but this evaluation has no value of it. Weights without one rank last. The nearest "
            f"key is {get_close_matches(key, self._values, 1, 0)[0]!r}."
            for key in self._watched(trainer)
            if key not in self._values
        ]

    def missing_notes(self, trainer: pl.Trainer) -> list[str]:
        """Return a note on all that wait for a value of this monitor, after an evaluation without values."""
        return [
            f"{name} monitors {x.monitor!r}, of which this evaluation has no value. A missing evaluation counts as no "
            "improvement, also for a `patience`"
            for name, x in waiting(trainer, self._prefix)
        ]

    def _watched(self, trainer: pl.Trainer) -> list[str]:
        """Return the keys of this monitor that callbacks and schedulers need; without them Lightning ends a run."""
        return [str(x.monitor) for name, x in waiting(trainer, self._prefix) if name != SCHEDULER or x.strict]


def waiting(trainer: pl.Trainer, prefix: str) -> list[tuple[str, Any]]:
    """Return the callbacks and learning-rate schedulers that wait for a value of a monitor, by their `monitor`."""
    found = [(type(callback).__name__, callback) for callback in trainer.callbacks]  # type: ignore[attr-defined]
    found += [(SCHEDULER, config) for config in trainer.lr_scheduler_configs]
    return [(name, x) for name, x in found if str(getattr(x, "monitor", None)).startswith(f"{prefix}/")]


def savers(trainer: pl.Trainer, prefix: str) -> list[Any]:
    """Return the callbacks that rank weights by a monitor."""
    return [x for _, x in waiting(trainer, prefix) if x in trainer.checkpoint_callbacks]


def saves_by_steps(trainer: pl.Trainer, prefix: str) -> bool:
    """Return True if a ModelCheckpoint ranks weights by this monitor after training batches or a time interval."""
    timing = ("_every_n_train_steps", "_train_time_interval")
    return any(getattr(x, name, None) for x in savers(trainer, prefix) for name in timing)


def _nothing(trainer: pl.Trainer, key: str) -> torch.Tensor:
    """Return the value of weights that were not evaluated: NaN, which ModelCheckpoint ranks last.

    EarlyStopping ends a run at NaN. If it waits for the key, the value is the worst that lets the run continue.
    """
    for stop in trainer.early_stopping_callbacks:
        if stop.monitor == key and stop.check_finite:
            limit = stop.divergence_threshold
            worst = -1e9 if stop.mode == "max" else 1e9
            return torch.tensor(worst if limit is None else limit)
    return torch.tensor(math.nan)
