# SPDX-License-Identifier: Apache-2.0
"""Progress bars that follow the Trainer's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from genmonitor.evaluation.progress import Progress

if TYPE_CHECKING:
    import lightning.pytorch as pl


def trainer_progress(trainer: pl.Trainer, name: str) -> Progress:
    """Return bars that name themselves, shown where the Trainer shows one and somebody looks."""
    shown = trainer.is_global_zero and trainer.progress_bar_callback is not None

    def progress(iterable: Iterable[Any], description: str) -> Iterator[Any]:
        # None: in a terminal or a notebook, not in a file, where each step of the bar would be a line
        return iter(tqdm(iterable, desc=f"{name}: {description}", leave=False, disable=None if shown else True))

    return progress
