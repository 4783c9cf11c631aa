# SPDX-License-Identifier: Apache-2.0
"""Evaluating checkpoints one after another, and telling how far that is."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genmonitor.callbacks.base import GenerativeMonitor
from genmonitor.callbacks.checkpoints.state import SweepState
from genmonitor.callbacks.integration.checkpoints import Checkpoint, CheckpointWeights
from genmonitor.callbacks.integration.circumstances import TrainerCollective
from genmonitor.callbacks.integration.data import images_until
from genmonitor.evaluation.results import History
from genmonitor.images.cache import clear
from genmonitor.loggers.publisher import finish_evaluations
from genmonitor.monitoring.options import MAX_FAILURES


@dataclass
class SweepResult:
    """What a sweep did.

    Attributes:
        folder: of the report and the other files.
        histories: the records of all evaluations, by prefix of the monitor.
        evaluated: the names of the checkpoints that were evaluated this time.
        before: how many moments of the run were evaluated by earlier sweeps.
        skipped: by name of the checkpoint, why it could not be evaluated.
    """

    folder: Path
    histories: dict[str, History]
    before: int
    evaluated: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass
class CheckpointEvaluations:
    """Evaluates checkpoints inside a Trainer. Every process of it does the same; rank zero alone tells and writes."""

    monitors: list[GenerativeMonitor]
    state: SweepState
    result: SweepResult
    tell: Callable[[str], Any]
    weights: CheckpointWeights = field(default_factory=CheckpointWeights)

    def skip(self, path: Path, why: str) -> None:
        """Tell of a checkpoint that cannot be evaluated."""
        self.result.skipped[path.name] = why
        self.tell(f"{path.name} is skipped: {why}")

    def run(self, found: list[Checkpoint], trainer: Any, pl_module: Any) -> None:
        """Evaluate these checkpoints; a sweep that is stopped has kept those that are over."""
        comm = TrainerCollective(trainer)
        start = time.monotonic()
        found = comm.broadcast(found)  # each process has looked, at a time of its own
        for number, checkpoint in enumerate(found, 1):
            succeeded = self._evaluate(checkpoint, trainer, pl_module)
            if succeeded:
                left = (time.monotonic() - start) / number * (len(found) - number)
                self._tell_progress(checkpoint, number, len(found), left)

    def _tell_progress(self, checkpoint: Checkpoint, number: int, total: int, left: float) -> None:
        rest = f", {duration(left)} left" if number < total else ""
        about = f"{number} of {total}{rest}: {checkpoint.path.name}, step {checkpoint.progress.step}"
        self.tell("\n".join([about, *(monitor.publisher.message for monitor in self.monitors)]))

    def _evaluate(self, checkpoint: Checkpoint, trainer: Any, pl_module: Any) -> bool:
        """Evaluate a checkpoint and keep what was found; return True if that succeeded."""
        path, comm = checkpoint.path, TrainerCollective(trainer)
        records = []
        try:
            with ExitStack() as stack:
                with comm.all_ranks_or_none():
                    progress = stack.enter_context(self.weights.of(path, trainer, pl_module))
                for monitor in self.monitors:
                    monitor.images_seen = images_until(trainer, progress)
                    records.append(monitor.evaluate(trainer, pl_module))
            with comm.all_ranks_or_none():
                if comm.rank == 0:
                    finish_evaluations(monitor.publisher for monitor in self.monitors)
        except Exception as error:
            self.skip(path, f"{type(error).__name__}: {error}")
        finally:
            clear(trainer)
        if comm.any_true(trainer.received_sigterm):  # Lightning only notes it
            raise SystemExit(128 + signal.SIGTERM)
        succeeded = any(record is not None for record in records)
        if succeeded:
            self.state.save(checkpoint.moment, writes=comm.rank == 0)
            self.result.evaluated.append(path.name)
        elif path.name not in self.result.skipped:
            self.skip(path, "its evaluation failed; see the warning")
        if off := [monitor for monitor in self.monitors if monitor.failures.switched_off]:
            raise ValueError(f"{MAX_FAILURES} evaluations of {off[0].prefix} in a row failed, the last of {path.name}.")
        return succeeded


def duration(seconds: float) -> str:
    """Return a time in words.

    Example:
        >>> duration(12), duration(200), duration(9000)
        ('12 s', '3 min', '2 h 30 min')
    """
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
