# SPDX-License-Identifier: Apache-2.0
"""Jobs that run in a worker process if it is ready, else inline: figures and the page, while training goes on.

Not a thread: matplotlib holds the interpreter's lock, and a training of small steps would lose the time of drawing. Not
`ProcessPoolExecutor`: it imports the user's script a second time, ends it by SIGPIPE where that is not ignored, waits
forever on exit for a worker that has stopped, and its worker outlives a training that was killed. loky's waits so too.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import matplotlib
import torch
from matplotlib.font_manager import fontManager

from genmonitor.loggers.facade import Loggers
from genmonitor.loggers.notes import Attempt
from genmonitor.training_state.rng import preserve_rng

T = TypeVar("T")
_FAMILIES = ("family", "serif", "sans-serif", "cursive", "fantasy", "monospace")

MAX_WAITING = 32
"""With more jobs waiting, the oldest is skipped: late figures are worse than none."""
PATIENCE = 60
"""Seconds without an answer after which the process is killed."""
COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import genmonitor.loggers.worker as w; w.serve()"


class Settings(NamedTuple):
    """The user's settings of matplotlib, for the process that draws."""

    parameters: Any
    """matplotlib's by name, but for the backend, which stays each process's own."""
    fonts: list[str]
    """Files of the fonts that the parameters name: the user may have added them."""

    @classmethod
    def current(cls) -> Settings:
        """Return those of this process."""
        # by name: to read the backend would choose one
        parameters: Any = {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}
        named = {name for family in _FAMILIES for name in parameters[f"font.{family}"]}
        return cls(parameters, sorted({font.fname for font in fontManager.ttflist if font.name in named}))

    def call(self, work: Callable[[], T]) -> T:
        """Call a function under these settings."""
        known = {font.fname for font in fontManager.ttflist}
        for path in self.fonts:
            if path not in known:
                fontManager.addfont(path)
        with matplotlib.rc_context(self.parameters):
            return work()


class Job(NamedTuple):
    """A function, and what is called with its result."""

    key: Hashable
    work: bytes
    reply: Future[bytes]
    then: Callable[[Callable[[], Any]], None]
    may_skip: bool


class Worker:
    """Runs functions in a process of its own, in order, and hands back their results when asked to.

    The random state, the devices and the streams of this process are not touched. A function that fails there, or was
    left when the process ended, runs in this process when its result is handed back.

    Attributes:
        ready: whether the process has loaded what it needs, and lives.
        lost: whether it ended after it was ready.
        skipped: number of jobs dropped because too many were waiting.
    """

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", COMMAND, json.dumps([str(path) for path in sys.path])],
                stdin=theirs.fileno(),
                # neither threads nor a GPU: both are the training's
                env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                start_new_session=True,  # Ctrl-C is for the training, which still wants its figures
            )
        self.ready, self.lost, self.skipped = False, False, 0
        self._jobs: list[Job] = []
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._pass_on, daemon=True, name="genmonitor")
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
        """Run a function after all that were submitted before.

        Args:
            key: a job that waits under the same key is dropped.
            work: a function that pickle takes, with tensors as NumPy arrays.
            then: called by `deliver` with a function that returns the result, or raises what went wrong.
            may_skip: whether the job may be dropped where too many are waiting.

        Raises:
            Exception: whatever pickle raises on what it does not take.
        """
        job = Job(key, _pickled(work), Future(), then, may_skip)
        self._jobs = [other for other in self._jobs if other.key != key or not other.reply.cancel()]
        if sum(not (other.reply.running() or other.reply.done()) for other in self._jobs) >= MAX_WAITING:
            self._skip_oldest()
        self._jobs.append(job)
        self._queue.put(job)

    def deliver(self) -> None:
        """Hand back the results that are there."""
        while self._jobs and self._jobs[0].reply.done():
            job = self._jobs.pop(0)
            reply = job.reply.result()
            with preserve_rng():  # a logger may draw random numbers
                job.then(partial(_result, job.work, reply))

    def drain(self) -> None:
        """Wait for all results, and hand them back."""
        while self._jobs:
            if not wait([self._jobs[0].reply], PATIENCE).done:
                self._process.kill()  # then the jobs that are left run here
            else:
                self.deliver()

    def close(self) -> None:
        """End the process, with the jobs it has left."""
        self._process.kill()
        self._queue.put(None)
        self._thread.join(PATIENCE)

    def _skip_oldest(self) -> None:
        oldest = next((job for job in self._jobs if job.may_skip and job.reply.cancel()), None)
        if oldest is not None:
            self._jobs.remove(oldest)
            self.skipped += 1

    def _pass_on(self) -> None:
        """Pass on one job at a time, so that those that wait can still be dropped; the thread's loop."""
        # a process that is gone must not end a training whose script has set SIGPIPE to end it
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        with suppress(EOFError, OSError):
            self._connection.recv_bytes()  # it has loaded what it needs
            self.ready = True
        while (job := self._queue.get()) is not None:
            if job.reply.set_running_or_notify_cancel():
                job.reply.set_result(self._exchange(job.work))
        self._end_process()

    def _exchange(self, work: bytes) -> bytes:
        """Return the pickled result, nothing if there is none."""
        if self.ready:
            with suppress(EOFError, OSError):
                self._connection.send_bytes(work)
                return self._connection.recv_bytes()
            self.ready, self.lost = False, True
        return b""

    def _end_process(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()


_running: Worker | None = None
_started = False


def start() -> None:
    """Start the worker process, unless that was done or tried; nobody has to wait for it."""
    global _running, _started
    if _started:
        return
    _started = True
    # no interpreter that takes a script, or no socket that it can have as its input
    if not sys.executable or getattr(sys, "frozen", False) or os.name != "posix":
        return
    with suppress(OSError, RuntimeError):  # where neither process nor thread can be started, all runs here
        _running = Worker()
        atexit.register(_running.close)


def _leave_to_parent() -> None:
    """Forget the worker in a fork of the training: its thread is not there, and its locks may be held for ever."""
    global _running, _started
    if _running is not None:
        atexit.unregister(_running.close)
        _running._connection.close()  # the worker ends when nobody can write to it
    _running, _started = None, False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def deliver() -> None:
    """Hand back the results that are there."""
    if _running is not None:
        _running.deliver()


def drain() -> int:
    """Wait for all results, hand them back, and return how many jobs were skipped since the last time."""
    if _running is None:
        return 0
    _running.drain()
    skipped, _running.skipped = _running.skipped, 0
    return skipped


class Jobs:
    """Runs jobs in the worker process if it is ready, else inline.

    Args:
        attempt: guards what runs here.
        loggers: of the run; what they get afterwards goes into a row of its own.
        parallel: whether to use the worker process; `deliver` must then be called often.
    """

    def __init__(self, attempt: Attempt, loggers: Loggers, parallel: bool) -> None:
        self._attempt, self._loggers, self._parallel = attempt, loggers, parallel

    def start(self) -> None:
        """Start the worker process for later jobs."""
        if self._parallel:
            self._attempt(start)

    @property
    def ready(self) -> bool:
        """Whether the worker process takes jobs; once that has died, the user is warned."""
        if _running is not None and _running.lost:
            _running.lost = False
            text = "the process that draws figures died, so training now waits for each figure."
            self._attempt(lambda: self._attempt.warn(text))
        return self._parallel and _running is not None and _running.ready

    def __call__(
        self,
        key: tuple[Any, ...],
        step: int,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        inline: bool = False,
    ) -> None:
        """Run a job.

        Args:
            key: a job that still waits under the same key is dropped.
            step: of its evaluation.
            work: runs in the worker process where pickle takes it.
            then: called here with the result.
            inline: run it here in any case.
        """

        def take(result: Callable[[], Any]) -> None:
            self._attempt(lambda: then(result()))
            self._loggers.finish_evaluation(step)  # what the training logs next must not come into the same row

        if self.ready and not inline and _running is not None:
            with suppress(Exception):  # what pickle does not take runs here
                _running.submit(key, partial(Settings.current().call, work), take, may_skip=key[0] == "figure")
                return
        self._attempt(lambda: then(work()))


def serve() -> None:
    """Run the worker process: read pickled functions, answer each with its pickled result, or with nothing."""
    os.nice(5)
    import scipy.ndimage  # noqa: F401 - what figures import when they are drawn

    import genmonitor.report.folder  # noqa: F401

    connection = Connection(sys.stdin.fileno())
    with suppress(EOFError, OSError):  # the training has ended
        connection.send_bytes(b"ready")
        while True:
            work = connection.recv_bytes()
            try:
                reply = pickle.dumps(pickle.loads(work)())
            except Exception:  # the training process tries it itself, and says what is wrong
                reply = b""
            connection.send_bytes(reply)


class _Plain(pickle.Pickler):
    """Pickles tensors, wherever they are, as NumPy arrays."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, torch.Tensor):
            from genmonitor.plotting.style import to_array

            return to_array(thing).__reduce__()
        return NotImplemented


def _result(work: bytes, reply: bytes) -> Any:
    return pickle.loads(reply) if reply else pickle.loads(work)()


def _pickled(work: Callable[[], Any]) -> bytes:
    buffer = io.BytesIO()
    _Plain(buffer, pickle.HIGHEST_PROTOCOL).dump(work)
    return buffer.getvalue()
