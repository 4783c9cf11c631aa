# SPDX-License-Identifier: Apache-2.0
"""The processes of a Trainer, and bars that follow its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from genmonitor.evaluation.collective import Collective
from genmonitor.evaluation.progress import Progress

if TYPE_CHECKING:
    import lightning.pytorch as pl


class TrainerCollective(Collective):
    """The processes of a Trainer, by its strategy.

    Args:
        trainer: whose strategy is set up.
    """

    def __init__(self, trainer: pl.Trainer) -> None:
        self._strategy = trainer.strategy
        self.rank, self.world_size = trainer.global_rank, trainer.world_size

    def all_true(self, flag: bool) -> bool:
        """Return whether the flag is true on every process."""
        return bool(self._strategy.reduce_boolean_decision(flag, all=True))

    def broadcast(self, value: Any) -> Any:
        """Return rank zero's value on every process."""
        return self._strategy.broadcast(value, src=0)


def trainer_progress(trainer: pl.Trainer, name: str) -> Progress:
    """Return bars that name themselves, shown where the Trainer shows one and somebody looks."""
    shown = trainer.is_global_zero and trainer.progress_bar_callback is not None

    def progress(iterable: Iterable[Any], description: str) -> Iterator[Any]:
        # None: in a terminal or a notebook, not in a file, where each step of the bar would be a line
        return iter(tqdm(iterable, desc=f"{name}: {description}", leave=False, disable=None if shown else True))

    return progress
