# SPDX-License-Identifier: Apache-2.0
"""The same training with a monitor, and without one but with its checkpoints."""

import torch
from _helpers.modules import Linear, measured, trainer
from _helpers.replayed import Digits, quiet
from lightning.pytorch.callbacks import ModelCheckpoint


def train(folder, module, data, *callbacks, keep=None, **settings):
    """Train from one seed, with a checkpoint of each epoch unless `keep` says of what else."""
    torch.manual_seed(1)
    checkpoint = ModelCheckpoint(folder / "checkpoints", filename="{epoch}-{step}", save_top_k=-1, **(keep or {}))
    runner = trainer(folder, *callbacks, checkpoint, **settings)
    runner.fit(module, datamodule=data)
    return runner


def new(kind=Linear, *arguments):
    """Return a module with the weights that all of its kind begin with."""
    torch.manual_seed(0)
    return kind(*arguments)


def both(folder, kind=Linear, *callbacks, monitor=None, keep=None, **settings):
    """Train with a monitor and without it; return what it logged, but for `images_seen`, which no sweep knows.

    The runs are in the folders "with" and "without".

    Args:
        folder: of both.
        kind: makes the module.
        callbacks: functions that make the other callbacks of the Trainer.
        monitor: settings of the monitor.
        keep: settings of ModelCheckpoint.
        settings: of the Trainer.
    """
    watching = quiet(**(monitor or {}))
    others = [make() for make in callbacks]
    train(folder / "with", new(kind), Digits(), watching, *others, keep=keep, **settings)
    train(folder / "without", new(kind), Digits(), *(make() for make in callbacks), keep=keep, **settings)
    return [{k: v for k, v in record.items() if k != "images_seen"} for record in measured(watching)]


def measured_in(result, prefix="cms"):
    """Return the history of a sweep without what the clock says."""
    return [{k: v for k, v in record.items() if not k.endswith("_seconds")} for record in result.histories[prefix]]
