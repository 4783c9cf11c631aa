# SPDX-License-Identifier: Apache-2.0
"""Putting a checkpoint's weights and progress into a module and its Trainer."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lightning.pytorch.callbacks import Callback

from genmonitor.callbacks.checkpoints.files import fit_loop, has_averaged, read_checkpoint, weights_in
from genmonitor.callbacks.integration.compat import TrainingProgress, at_progress


class WeightAveraging(Callback):
    """The averaged weights of a checkpoint, where monitors look for those of Lightning's callback of this name."""

    def __init__(self) -> None:
        self._average_model: Any = None

    def copy_of(self, module: Any) -> Any:
        """Return the module that holds the averaged weights, made at the first call."""
        if self._average_model is None:
            self._average_model = SimpleNamespace(module=copy.deepcopy(module))
        return self._average_model.module


class CheckpointWeights:
    """Puts checkpoints into a module that is set up, one after another.

    Args:
        averaged: whether they hold averaged weights beside the others.

    Attributes:
        averaged: the same.
        callbacks: what the Trainer must have.
    """

    def __init__(self, averaged: bool = False) -> None:
        self.averaged = averaged
        self._averaging = WeightAveraging() if averaged else None
        self.callbacks: list[Callback] = [self._averaging] if self._averaging else []

    @contextmanager
    def of(self, path: Path, trainer: Any, pl_module: Any) -> Iterator[TrainingProgress]:
        """Have a checkpoint's weights in the module, and the Trainer as far as it says, inside the block.

        Raises:
            OSError: if there is no such file.
            ValueError: if it is no checkpoint of this run.
            RuntimeError: if the weights are another module's.
        """
        saved = read_checkpoint(path)
        if has_averaged(saved) != self.averaged:
            known = "has averaged weights" if has_averaged(saved) else "has no averaged weights"
            raise ValueError(f"Expected a checkpoint of the same run as the first, but {path} {known}, unlike that.")
        strict = pl_module.strict_loading
        pl_module.on_load_checkpoint(saved)
        if self._averaging is not None:
            average = self._averaging.copy_of(pl_module)
            average.load_state_dict(weights_in(saved, averaged=True), strict=strict)
        pl_module.load_state_dict(weights_in(saved, averaged=False), strict=strict)
        with at_progress(trainer, fit_loop(saved)) as progress:
            yield progress
