# SPDX-License-Identifier: Apache-2.0
"""What keeps a failed evaluation from ending the run: a value for whoever waits for its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import lightning.pytorch as pl

WORST = 1e9


def fill_scheduler_keys(trainer: pl.Trainer, prefix: str) -> None:
    """Give the worst value to keys that learning-rate schedulers wait for and that no evaluation logged yet.

    Lightning ends a run in which a scheduler that is due does not find its key, be it before the first evaluation.
    """
    for config in trainer.lr_scheduler_configs:
        if config.strict:  # another is only warned about, and left as it is
            _fill(trainer, prefix, config.monitor, getattr(config.scheduler, "mode", "min"))


def fill_callback_keys(trainer: pl.Trainer, prefix: str) -> None:
    """Give the worst value to keys that callbacks wait for and that no evaluation could log.

    Lightning ends a run in which ModelCheckpoint or EarlyStopping never finds its key, and EarlyStopping one that is
    not finite.
    """
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        _fill(trainer, prefix, getattr(callback, "monitor", None), getattr(callback, "mode", "min"))


def _fill(trainer: pl.Trainer, prefix: str, key: str | None, mode: str) -> None:
    if str(key).startswith(f"{prefix}/"):
        trainer.callback_metrics.setdefault(str(key), torch.tensor(-WORST if mode == "max" else WORST))
