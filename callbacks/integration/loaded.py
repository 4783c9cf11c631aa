# SPDX-License-Identifier: Apache-2.0
"""What Lightning loaded where it validates or tests: which weights, and from what moment of the training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from genmonitor.callbacks.checkpoints.files import fit_loop, has_averaged, read_checkpoint

if TYPE_CHECKING:
    import lightning.pytorch as pl


def loaded_loops(trainer: pl.Trainer) -> dict[str, Any]:
    """Return the state of the training's loop: that in the checkpoint that was loaded, else the Trainer's own."""
    saved = _loaded(trainer)
    state: dict[str, Any] = trainer.fit_loop.state_dict() if saved is None else fit_loop(saved)
    return state


def loaded_weights(trainer: pl.Trainer) -> Literal["raw", "averaged"]:
    """Say which weights Lightning has put into the module where nothing averages them now."""
    saved = _loaded(trainer)
    return "averaged" if saved is not None and has_averaged(saved) else "raw"


def _loaded(trainer: pl.Trainer) -> dict[str, Any] | None:
    """Return the checkpoint of `trainer.validate` or `trainer.test`; None where there is none that can be read here."""
    if trainer.state.fn == "fit" or trainer.ckpt_path is None:
        return None
    try:
        return read_checkpoint(Path(trainer.ckpt_path))
    except (OSError, ValueError):  # on another machine, or with objects of the user's
        return None
