# SPDX-License-Identifier: Apache-2.0
"""Evaluating checkpoints one after another, and telling how far that is."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from genmonitor.callbacks.base import GenerativeMonitor, sampled_model
from genmonitor.callbacks.checkpoints.files import Checkpoint, CheckpointWeights
from genmonitor.callbacks.checkpoints.state import SweepState
from genmonitor.callbacks.checkpoints.workers import DrawingProcesses, Drawn
from genmonitor.callbacks.integration.data import images_until
from genmonitor.evaluation.collective import SingleProcess
from genmonitor.evaluation.results import History, Samples
from genmonitor.evaluation.sampling.cache import clear
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
    """Evaluates checkpoints inside a Trainer."""

    monitors: list[GenerativeMonitor]
    state: SweepState
    result: SweepResult
    tell: Callable[[str], Any]
    weights: CheckpointWeights = field(default_factory=CheckpointWeights)
    processes: DrawingProcesses | None = None

    def skip(self, path: Path, why: str) -> None:
        """Tell of a checkpoint that cannot be evaluated."""
        self.result.skipped[path.name] = why
        self.tell(f"{path.name} is skipped: {why}")

    def run(
        self, found: list[Checkpoint], wait: Callable[[Callable[[], bool]], list[Checkpoint]] | None, *where: Any
    ) -> None:
        """Evaluate what was found and, given a function that waits for more, whatever that returns."""
        trainer, pl_module = where
        with stopped_by_interrupt() if wait is not None else nullcontext(lambda: False) as interrupted:

            def stopped() -> bool:
                if trainer.received_sigterm:  # Lightning only notes it
                    raise SystemExit(128 + signal.SIGTERM)
                return interrupted()

            while found:
                start = time.monotonic()
                for number, checkpoint in enumerate(found, 1):
                    if stopped():
                        return
                    if self._evaluate(checkpoint, trainer, pl_module):
                        left = (time.monotonic() - start) / number * (len(found) - number)
                        self._tell_progress(checkpoint, number, len(found), left)
                found = wait(stopped) if wait is not None else []

    def _tell_progress(self, checkpoint: Checkpoint, number: int, total: int, left: float) -> None:
        rest = f", {duration(left)} left" if number < total else ""
        said = "".join(f" {monitor.publisher.message}" for monitor in self.monitors)
        self.tell(f"{number} of {total}{rest}: {checkpoint.path.name}, step {checkpoint.progress.step}.{said}")

    def _evaluate(self, checkpoint: Checkpoint, trainer: Any, pl_module: Any) -> bool:
        """Evaluate a checkpoint and keep what was found; say whether that succeeded."""
        path = checkpoint.path
        drawn = None if self.processes is None else cache(partial(self.processes.take, path))
        records = []
        try:
            with self.weights.of(path, trainer, pl_module) as progress:
                for monitor in self.monitors:
                    monitor.images_seen = images_until(trainer, progress)
                    draw = None if drawn is None else partial(_samples, drawn, monitor, trainer, pl_module)
                    records.append(monitor.evaluate(trainer, pl_module, draw))
            finish_evaluations(monitor.publisher for monitor in self.monitors)
        except Exception as error:
            self.skip(path, f"{type(error).__name__}: {error}")
        finally:
            clear(trainer)
        succeeded = any(record is not None for record in records)
        if succeeded:
            self.state.save(checkpoint.moment)
            self.result.evaluated.append(path.name)
        elif path.name not in self.result.skipped:
            self.skip(path, "its evaluation failed; see the warning")
        self._check_that_it_goes_on(path)
        return succeeded

    def _check_that_it_goes_on(self, path: Path) -> None:
        if self.processes is not None and self.processes.died:
            raise RuntimeError(
                "A process that draws samples died, perhaps for lack of memory. Finished evaluations are kept: "
                "sweep again with fewer `workers` to continue."
            )
        if off := [monitor for monitor in self.monitors if monitor.failures.switched_off]:
            raise ValueError(f"{MAX_FAILURES} evaluations of {off[0].prefix} in a row failed, the last of {path.name}.")


@contextmanager
def stopped_by_interrupt() -> Iterator[Callable[[], bool]]:
    """Have the first Ctrl-C inside the block take note of it only; yield what says whether there was one.

    A KeyboardInterrupt may come up anywhere, and be lost where Python cannot raise. The second one is raised as ever.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield interrupted.is_set
        return

    def note(*_: Any) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _samples(drawn: Callable[[], Drawn | None], monitor: GenerativeMonitor, trainer: Any, pl_module: Any) -> Samples:
    """Return what another process drew, or draw where that failed."""
    found, sampler = drawn(), monitor.sampler
    if found is None:
        return sampler.samples(sampled_model(trainer, pl_module), SingleProcess())
    images = found[monitor.prefix]["images"].to(pl_module.device)
    sampler.drawn = found[monitor.prefix]["drawn"]
    return Samples(images, torch.arange(len(images), device=images.device))


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
