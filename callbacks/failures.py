# SPDX-License-Identifier: Apache-2.0
"""What a failed evaluation means for the run: as a rule nothing."""

from __future__ import annotations

import traceback
import warnings
from typing import TYPE_CHECKING, Any, Literal

import torch

from genmonitor._validation import NotFiniteError, check_one_of
from genmonitor.callbacks.integration.collective import TrainerCollective
from genmonitor.evaluation.collective import FailedElsewhereError
from genmonitor.evaluation.results import Alert

if TYPE_CHECKING:
    import lightning.pytorch as pl

    from genmonitor.callbacks.base import GenerativeMonitor

OnError = Literal["warn", "raise"]

MAX_FAILURES = 3
WORST = 1e9


class FailurePolicy:
    """Counts failures in a row, and says when to stop trying.

    Args:
        on_error: "warn" skips an evaluation that fails, and switches the monitor off after 3 in a row; "raise" lets it
            stop the run.
    """

    def __init__(self, on_error: OnError = "warn") -> None:
        self.raises = check_one_of("on_error", on_error, ("warn", "raise")) == "raise"
        self.count = 0
        self.not_finite = False

    @property
    def switched_off(self) -> bool:
        """Whether so many evaluations failed in a row that no other is tried."""
        return self.count >= MAX_FAILURES

    def succeeded(self) -> None:
        """Take note of a success."""
        self.count, self.not_finite = 0, False

    def failed(self) -> bool:
        """Take note of a failure; return whether it is the one that switches the monitor off."""
        self.count += 1
        return self.count == MAX_FAILURES

    def found_not_finite(self) -> bool:
        """Take note of NaN or infinite samples; return whether the samples before had none.

        That is a finding about the generator, which may recover: no reason to stop looking.
        """
        first, self.not_finite = not self.not_finite, True
        return first

    def try_again(self) -> None:
        """Begin another fit, in which a monitor that was switched off tries again."""
        if self.switched_off:
            self.count = 0

    def reset(self) -> None:
        """Begin a new run."""
        self.count, self.not_finite = 0, False

    def state_dict(self) -> dict[str, Any]:
        """Return plain Python only."""
        return {"failures": self.count, "not_finite": self.not_finite}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.count, self.not_finite = state["failures"], state["not_finite"]


def skip_evaluation(monitor: GenerativeMonitor, trainer: pl.Trainer, error: Exception, epoch: float) -> None:
    """Say that an evaluation failed, and let the run go on without it; every process calls it.

    Args:
        monitor: whose evaluation it was.
        trainer: the monitor's.
        error: this process's.
        epoch: that of the evaluation.
    """
    not_finite = TrainerCollective(trainer).any_true(isinstance(error, NotFiniteError))
    elsewhere, publisher = isinstance(error, FailedElsewhereError), monitor.publisher
    if not elsewhere:
        where = f" on process {trainer.global_rank}" if trainer.world_size > 1 else ""
        trace = "".join(traceback.format_exception(error))
        # not `rank_zero_warn`, which only process zero says
        warnings.warn(f"{type(monitor).__name__}: this evaluation failed{where} and is skipped.\n{trace}", stacklevel=2)
    if not_finite:
        if monitor.failures.found_not_finite() and trainer.is_global_zero:
            publisher.publish_alert(_not_finite_alert(monitor.prefix, trainer.current_epoch))
    else:
        switched_off = monitor.failures.failed()
        why = "" if elsewhere else f": {type(error).__name__}: {error}"
        publisher.record_note(f"The evaluation of epoch {epoch:g} failed and was skipped{why}.")
        if switched_off:
            publisher.note(f"{MAX_FAILURES} evaluations in a row failed, so it is switched off.")
    fill_callback_keys(trainer, monitor.prefix)
    if trainer.is_global_zero:
        publisher.write_report(len(monitor.history))


def _not_finite_alert(prefix: str, epoch: int) -> Alert:
    text = f"the generator gives NaN or infinite values at epoch {epoch}: they have no score."
    return Alert(f"{prefix}: NaN or infinite values", text)


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
