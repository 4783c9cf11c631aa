# SPDX-License-Identifier: Apache-2.0
"""Schedule of the evaluations of a monitor."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from genmonitor._validation import check_at_least
from genmonitor.callbacks.compat import batches_seen


class Schedule:
    """Every n-th epoch, or every n-th training batch.

    Args:
        every_n_epochs: Number n of epochs, to evaluate in every n-th.
        every_n_train_steps: Number n of training batches, to evaluate after the first and then after every n-th
            instead.

    Example:
        >>> schedule = Schedule(every_n_epochs=2)
        >>> [schedule.epoch_due(epoch) for epoch in range(4)]
        [True, False, True, False]
    """

    def __init__(self, every_n_epochs: int = 1, every_n_train_steps: int | None = None) -> None:
        self.every_n_epochs = check_at_least("every_n_epochs", every_n_epochs, 1)
        if every_n_train_steps is not None:
            check_at_least("every_n_train_steps", every_n_train_steps, 1)
        self.every_n_train_steps = every_n_train_steps
        self._last_epoch: int | None = None
        self._begun = False

    @property
    def by_steps(self) -> bool:
        """True if it counts training batches."""
        return self.every_n_train_steps is not None

    @property
    def every_epoch(self) -> bool:
        """True if every epoch has an evaluation at its end."""
        return self.every_n_epochs == 1 and not self.by_steps

    def step_due(self, batches: int) -> bool:
        """Return True if an evaluation is due after these training batches, and remember it."""
        n = self.every_n_train_steps
        due = n is not None and (not self._begun or batches % n == 0)
        self._begun = self._begun or due
        return due

    def epoch_due(self, epoch: int, last: bool = False) -> bool:
        """Return True if this epoch is evaluated, and remember it; the `last` one of a training always is."""
        before = self._last_epoch
        too_soon = before is not None and 0 < epoch - before < self.every_n_epochs
        if (self.by_steps or too_soon) and not last:
            return False
        self._last_epoch = epoch
        return True

    def reset(self) -> None:
        """Begin a new run."""
        self._last_epoch, self._begun = None, False

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain Python."""
        return {"last_epoch": self._last_epoch, "begun": self._begun}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self._last_epoch, self._begun = state["last_epoch"], state["begun"]


def epoch_of(trainer: pl.Trainer, schedule: Schedule) -> float:
    """Return the epoch of an evaluation, with its fraction if an epoch has several evaluations."""
    batches, n = batches_seen(trainer)[1], trainer.num_training_batches
    every = getattr(trainer, "val_check_batch", None)  # before its first fit, a Trainer of Lightning 2.4 has none
    # these numbers do not suffice: in its extra epoch StochasticWeightAveraging counts one batch more
    within = every is not None and every < n and not _is_once(trainer.val_check_interval)
    several = schedule.by_steps or within
    return float(trainer.current_epoch + (round(batches / n, 3) if several and isinstance(n, int) else 0))


def _is_once(val_check_interval: Any) -> bool:
    """Return True if an epoch has one validation; the integer 1 means one per batch."""
    return isinstance(val_check_interval, float) and val_check_interval == 1
