# SPDX-License-Identifier: Apache-2.0
"""The processes of a Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genmonitor.evaluation.collective import Collective

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
