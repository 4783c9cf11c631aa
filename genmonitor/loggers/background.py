# SPDX-License-Identifier: Apache-2.0
"""A process beside the training that draws and writes, so that the training does not wait for it.

Not a thread: matplotlib holds the interpreter's lock, and a training of small steps would lose what drawing takes. Not
a pool of `multiprocessing`: it runs the user's script a second time.
"""

from __future__ import annotations

import atexit
import io
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import torch

from genmonitor.loggers import _worker
from genmonitor.training_state.rng import preserve_rng

MOST_WAITING = 32
"""Where more is waiting, what has waited longest is skipped: late figures are worse than none."""
PATIENCE = 60
"""Seconds without an answer after which the process is given up."""
LOAD = "import genmonitor.report.folder, scipy.ndimage"
"""What the process runs before it is ready."""


class Job(NamedTuple):
    """What is done, and what is then done with the result."""

    work: bytes
    then: Callable[[Callable[[], Any]], None]
    may_skip: bool


class Background:
    """Runs functions in a process of its own, in order, and hands back what they return when it is asked to.

    The random state, the devices and the streams of this process are not touched. What the other process cannot do, or
    leaves undone because it ended, is done here.

    Attributes:
        ready: whether the other process has loaded what it needs.
        skipped: how much was dropped because too much was waiting.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-I", str(Path(_worker.__file__)), str(os.getpid())]
        # neither threads nor a GPU: both are the training's
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._requests: Any = self._process.stdin
        self._replies: Any = self._process.stdout
        self.ready, self.skipped = False, 0
        self._waiting: dict[Hashable, Job] = {}
        self._current: Job | None = None
        self._changed = threading.Condition()
        self._done: SimpleQueue[tuple[Job, bytes | None]] = SimpleQueue()
        self._ended = False
        self._thread = threading.Thread(target=self._serve, daemon=True, name="genmonitor")
        try:
            self._thread.start()
        except RuntimeError:  # the limit of threads is reached
            self._end_process()
            raise

    def submit(
        self,
        key: Hashable,
        work: Callable[[], Any],
        then: Callable[[Callable[[], Any]], None],
        may_skip: bool = True,
    ) -> None:
        """Have something done as soon as all before it is.

        Args:
            key: of what it is; what waits under the same key is dropped for it.
            work: a function that pickle takes, with tensors as NumPy arrays.
            then: called by `deliver` with a function that returns the result, or raises what went wrong.
            may_skip: whether it may be dropped where too much is waiting.

        Raises:
            Exception: whatever pickle raises on what it does not take.
        """
        job = Job(_pickled(work), then, may_skip)
        with self._changed:
            self._waiting.pop(key, None)
            if len(self._waiting) >= MOST_WAITING:
                self._skip_oldest()
            self._waiting[key] = job
            if self._ended:
                self._return_waiting()
            self._changed.notify()

    def deliver(self) -> None:
        """Hand back what is done."""
        while not self._done.empty():
            self._hand_back(*self._done.get())

    def drain(self) -> None:
        """Wait until all is done, and hand it back."""
        while self._has_work():
            try:
                done = self._done.get(timeout=PATIENCE)
            except Empty:
                self._process.kill()  # then what is left is done here
                self._thread.join()
            else:
                self._hand_back(*done)

    def close(self) -> None:
        """End the process, with what it has left to do."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._process.kill()
        self._thread.join()
        self._end_process()

    def _end_process(self) -> None:
        self._process.kill()
        self._process.wait()
        with suppress(OSError):  # something that was not sent may be left
            self._requests.close()
        self._replies.close()

    def _has_work(self) -> bool:
        with self._changed:
            return bool(self._waiting) or self._current is not None or not self._done.empty()

    def _skip_oldest(self) -> None:
        oldest = next((key for key, job in self._waiting.items() if job.may_skip), None)
        if oldest is not None:
            del self._waiting[oldest]
            self.skipped += 1

    def _hand_back(self, job: Job, reply: bytes | None) -> None:
        with preserve_rng():  # a logger may draw random numbers
            job.then(lambda: pickle.loads(job.work)() if reply is None else pickle.loads(reply))

    def _serve(self) -> None:
        """Have the process work until it ends or is to end. Runs in a thread that waits nearly always."""
        # whatever is raised: what the process sends, if it does not just end, may be anything
        with suppress(Exception):
            self._pass_on()
        self._process.kill()
        with self._changed:
            self.ready, self._ended = False, True
            if self._current is not None:
                self._done.put((self._current, None))
                self._current = None
            self._return_waiting()

    def _pass_on(self) -> None:
        """Pass on one job at a time: what waits can still be dropped."""
        pickle.dump(sys.path, self._requests)
        self.ready = self._exchange(pickle.dumps(partial(exec, LOAD))) is not None
        while self.ready:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if self._ended:
                    return
                job = self._current = self._waiting.pop(next(iter(self._waiting)))
            reply = self._exchange(job.work)
            with self._changed:
                self._done.put((job, reply))
                self._current = None

    def _exchange(self, work: bytes) -> bytes | None:
        pickle.dump(work, self._requests)
        self._requests.flush()
        reply: bytes | None = pickle.load(self._replies)
        return reply

    def _return_waiting(self) -> None:
        for job in self._waiting.values():
            self._done.put((job, None))
        self._waiting.clear()


_running: tuple[int, Background | None] | None = None


def start() -> None:
    """Start the process beside this one, unless that was done or tried; nobody has to wait for it."""
    global _running
    if _running is not None and _running[0] == os.getpid():
        return
    _running = os.getpid(), None
    if not sys.executable or getattr(sys, "frozen", False):  # no interpreter that takes a script
        return
    with suppress(OSError, RuntimeError):  # where neither process nor thread can be started, all is done here
        background = Background()
        _running = os.getpid(), background
        atexit.register(background.close)


def running() -> Background | None:
    """Return the process beside this one, perhaps not ready yet; a fork of this one has none."""
    return _running[1] if _running is not None and _running[0] == os.getpid() else None


def deliver() -> None:
    """Hand back what is done."""
    if (background := running()) is not None:
        background.deliver()


def drain() -> int:
    """Wait until all is done, hand it back, and return how much was skipped since the last time."""
    if (background := running()) is None:
        return 0
    background.drain()
    skipped, background.skipped = background.skipped, 0
    return skipped


class _Plain(pickle.Pickler):
    """Pickles tensors, wherever they are, as NumPy arrays."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, torch.Tensor):
            from genmonitor.plotting.style import to_array

            return to_array(thing).__reduce__()
        return NotImplemented


def _pickled(work: Callable[[], Any]) -> bytes:
    buffer = io.BytesIO()
    _Plain(buffer, pickle.HIGHEST_PROTOCOL).dump(work)
    return buffer.getvalue()
