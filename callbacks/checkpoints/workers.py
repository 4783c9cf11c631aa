# SPDX-License-Identifier: Apache-2.0
"""Drawing the samples of several checkpoints at once, in processes of their own.

Only the drawing: what is measured depends on the best evaluation before, so one process measures them all, in order.
"""

from __future__ import annotations

import io
import multiprocessing
import pickle
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from genmonitor.callbacks.base import GenerativeMonitor, sampled_model
from genmonitor.callbacks.checkpoints.files import CheckpointWeights
from genmonitor.callbacks.checkpoints.setup import Setup, on_device, run_at_start, settings_of, spread
from genmonitor.callbacks.integration.weights import chosen_weights
from genmonitor.evaluation.collective import SingleProcess
from genmonitor.evaluation.sampling import cache
from genmonitor.training_state.isolation import preserve_training_state

AHEAD = 2
"""Checkpoints per process whose samples may wait to be measured."""

Drawn = dict[str, dict[str, Any]]
"""By prefix of the monitor: "images" [n, C, H, W] on the CPU, and "drawn", which of them at once."""


@dataclass(frozen=True)
class Work:
    """What a drawing process is started with; it must be possible to pickle.

    Attributes:
        make: makes what was trained.
        averaged: whether the checkpoints hold averaged weights too.
        device: where to draw, None for where the training was.
        threads: of torch: the last digits of a sum depend on them.
    """

    make: Callable[[], Setup]
    averaged: bool
    device: str | None
    threads: int


class DrawingProcesses:
    """Processes that draw the samples of checkpoints, the first ones first.

    Args:
        work: what each of them is started with.
        number: how many.
        paths: the checkpoints, in the order in which samples are asked for.

    Attributes:
        died: whether one of them did, by another's hand or for lack of memory.

    Raises:
        ValueError: if the setup is a function that no other process can import.
    """

    def __init__(self, work: Work, number: int, paths: Sequence[Path]) -> None:
        context = multiprocessing.get_context("spawn")
        self._waiting, self._ready = deque(paths), dict[Path, Drawn | None]()
        self._limit = AHEAD * number
        self._connections: list[Connection] = []
        self._idle: list[Connection] = []
        self.died = False
        self._processes = []
        for index in range(number):
            here, there = context.Pipe()
            # no daemon: these may not start the processes of a DataLoader
            process = context.Process(target=_draw_until_closed, args=(there, work, index))
            self._connections.append(here)
            self._processes.append(process)
            try:
                process.start()
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise ValueError(
                    f"Expected `setup` to be a function that other processes can import, but {error}. Give "
                    "setup='FILE.py:FUNCTION', or workers=1."
                ) from error
            there.close()
        self._idle += self._connections
        self._give_work()

    def take(self, path: Path) -> Drawn | None:
        """Return the samples of a checkpoint once they are drawn; None where that failed."""
        while path not in self._ready and not self.died:
            for connection in wait(self._connections):
                assert isinstance(connection, Connection)
                try:
                    done = torch.load(io.BytesIO(connection.recv_bytes()), weights_only=True)
                except (EOFError, OSError):
                    self.died = True
                    break
                self._ready[Path(done["path"])] = done["samples"]
                self._idle.append(connection)
            self._give_work()
        return self._ready.pop(path, None)

    def _give_work(self) -> None:
        while self._idle and self._waiting and not self.died and len(self._ready) < self._limit:
            self._idle.pop().send(self._waiting.popleft())

    def close(self) -> None:
        """End the processes."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            if process.pid is not None:
                process.terminate()
                process.join()


def _draw_until_closed(connection: Connection, work: Work, index: int) -> None:
    torch.set_num_threads(work.threads)
    setup, weights = work.make(), CheckpointWeights(work.averaged)

    def body(trainer: Any, pl_module: Any) -> None:
        # in place of Lightning's handler, which lets a draw go on: this process writes nothing that could be half done
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a Ctrl-C the process that measures tells
        while True:
            try:
                path = connection.recv()
            except EOFError:
                return
            samples: Drawn | None
            try:
                samples = _draw(setup.monitors, weights, trainer, pl_module, path)
            except Exception:  # the process that measures meets it too, and says so
                samples = None
            content = io.BytesIO()
            torch.save({"path": str(path), "samples": samples}, content)
            connection.send_bytes(content.getbuffer())

    settings = spread(settings_of(setup.trainer) | on_device(work.device), index)
    run_at_start(setup.module, setup.data, body, weights.callbacks, **settings)


def _draw(
    monitors: Sequence[GenerativeMonitor], weights: CheckpointWeights, trainer: Any, pl_module: Any, path: Path
) -> Drawn:
    found: Drawn = {}
    model = sampled_model(trainer, pl_module, shared=len(monitors) > 1)
    try:
        with weights.of(path, trainer, pl_module):
            for monitor in monitors:
                with chosen_weights(monitor.weights, trainer, pl_module, monitor), preserve_training_state(pl_module):
                    samples = monitor.sampler.samples(model, SingleProcess())
                found[monitor.prefix] = {"images": samples.images.cpu(), "drawn": monitor.sampler.drawn}
    finally:
        cache.clear(trainer)
    return found
