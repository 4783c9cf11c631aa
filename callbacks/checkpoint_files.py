# SPDX-License-Identifier: Apache-2.0
"""Lightning's checkpoints as files: their order, their content, and their weights in a module."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from genmonitor.callbacks.compat import TrainingProgress, at_progress, progress_in
from genmonitor.evaluation.evaluator import reading_state


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that can be read.

    Attributes:
        path: Path of the file.
        progress: Progress of the training when it was saved.
        averaged: True if it holds averaged weights too.
    """

    path: Path
    progress: TrainingProgress
    averaged: bool = False

    @property
    def moment(self) -> int:
        """Moment in the training: the number of training batches seen."""
        return self.progress.batches


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint without unpickling: tensors, which stay on disk until used, and plain Python.

    Raises:
        OSError: If there is no such file.
        ValueError: If it is not a checkpoint of Lightning, or holds something else.
    """
    try:
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is not a checkpoint of tensors and plain Python objects: {error}") from error
    if not isinstance(saved, dict) or not {"epoch", "global_step", "state_dict", "loops"} <= saved.keys():
        raise ValueError(f"Expected a Lightning checkpoint, but {path} has no global_step, state_dict and loops.")
    return saved


def look_at(path: Path) -> Checkpoint:
    """Return a checkpoint with its place in the run; errors are those of `read_checkpoint`."""
    saved = read_checkpoint(path)
    with reading_state(f"the training in {path}"):
        return Checkpoint(path, progress_in(fit_loop(saved)), has_averaged(saved))


def fit_loop(saved: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the training's loop in a checkpoint."""
    return saved["loops"]["fit_loop"]


def weights_in(saved: dict[str, Any], averaged: bool) -> dict[str, Any]:
    """Return the averaged or the raw weights of a checkpoint, which has both if Lightning averaged weights."""
    # Lightning's WeightAveraging puts the averaged weights where the others were
    return saved["state_dict" if averaged or not has_averaged(saved) else "current_model_state"]


def has_averaged(saved: dict[str, Any]) -> bool:
    """Return True if a checkpoint holds averaged weights too."""
    return "current_model_state" in saved


def find_files(places: Sequence[Path]) -> list[Path]:
    """Return the checkpoints among these files and below these folders, in the order of their names."""
    found = {path for place in places for path in (place.rglob("*.ckpt") if place.is_dir() else [place])}
    return sorted(path for path in found if not path.name.startswith("."))


def in_order(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return checkpoints in the order of the training, one per moment, since last.ckpt is often a copy of another."""
    by_name = sorted(checkpoints, key=lambda one: (one.path.stem.startswith("last"), one.path.name))
    first: dict[int, Checkpoint] = {}
    for checkpoint in by_name:
        first.setdefault(checkpoint.moment, checkpoint)
    return [checkpoint for _, checkpoint in sorted(first.items())]


def run_of(places: Sequence[Path]) -> Path:
    """Return the folder of the run of checkpoints: the parent of a folder called checkpoints.

    Example:
        >>> str(run_of([Path("run")])), str(run_of([Path("run/checkpoints/epoch=1.ckpt")]))
        ('run', 'run')
    """
    place = places[0] if places[0].suffix != ".ckpt" else places[0].parent
    return place.parent if place.name == "checkpoints" else place


class WeightAveraging(Callback):
    """Averaged weights of a checkpoint, in place of Lightning's callback of this name."""

    def __init__(self) -> None:
        self._average_model: Any = None

    def take(self, module: Any, saved: dict[str, Any]) -> None:
        """Load the averaged weights of a checkpoint into a copy of the module, made at the first call."""
        if self._average_model is None:
            self._average_model = SimpleNamespace(module=copy.deepcopy(module))
        self._average_model.n_averaged = saved["averaging_state"]["n_averaged"]
        self._average_model.module.load_state_dict(weights_in(saved, averaged=True), strict=module.strict_loading)


@contextmanager
def checkpoint_loaded(
    path: Path, trainer: Any, pl_module: Any, averaging: WeightAveraging | None
) -> Iterator[TrainingProgress]:
    """Load the weights and the progress of a checkpoint into module and Trainer inside the block.

    Args:
        path: Path of the checkpoint.
        trainer: Trainer in which the module is set up.
        pl_module: Module that gets the weights.
        averaging: Callback of the Trainer that gets the averaged weights; None if the checkpoints of this run have
            none.

    Raises:
        OSError: If there is no such file.
        ValueError: If it is not a checkpoint of this run.
        RuntimeError: If the weights belong to another module.
    """
    saved = read_checkpoint(path)
    if has_averaged(saved) != (averaging is not None):
        known = "has averaged weights" if has_averaged(saved) else "has no averaged weights"
        raise ValueError(f"Expected checkpoints of one run, but {path} {known}, unlike the first.")
    pl_module.on_load_checkpoint(saved)
    if averaging is not None:
        averaging.take(pl_module, saved)
    pl_module.load_state_dict(weights_in(saved, averaged=False), strict=pl_module.strict_loading)
    with at_progress(trainer, fit_loop(saved)) as progress:
        yield progress
