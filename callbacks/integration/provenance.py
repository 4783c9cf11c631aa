# SPDX-License-Identifier: Apache-2.0
"""Where a run keeps its files, and what else its numbers may depend on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from genmonitor._manifest import TrainingManifest, where_defined

if TYPE_CHECKING:
    import lightning.pytorch as pl


def run_folder(trainer: pl.Trainer) -> Path:
    """Return the folder of the run, that in which ModelCheckpoint puts its own: the same on every process.

    It stays where it is when the working directory changes.
    """
    folder = Path(trainer.default_root_dir)
    if trainer.loggers:
        logger = trainer.loggers[0]
        version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
        folder = Path(logger.save_dir or folder) / str(logger.name) / version
    return Path(trainer.strategy.broadcast(str(folder.absolute()), src=0))


def circumstances(trainer: pl.Trainer, pl_module: pl.LightningModule, weights: str) -> TrainingManifest:
    """Return whose module and data were evaluated, with which weights, and what they ran on."""
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
