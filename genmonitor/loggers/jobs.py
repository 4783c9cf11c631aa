# SPDX-License-Identifier: Apache-2.0
"""Best-effort side effects, here or in the worker process: an error is warned of once and never propagates."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import matplotlib
from matplotlib.font_manager import fontManager

from genmonitor.loggers import worker
from genmonitor.loggers.facade import Loggers

T = TypeVar("T")

_FAMILIES = ("family", "serif", "sans-serif", "cursive", "fantasy", "monospace")


class Attempt:
    """Runs functions without letting their errors propagate: warns of each kind once.

    Args:
        warn: called with the text of a warning.
        raise_errors: let errors propagate after all, for tests.

    Example:
        >>> attempt = Attempt(print)
        >>> for _ in range(2):
        ...     attempt(lambda: open("no/such/file"))
        part of an evaluation could not be shown or written. FileNotFoundError: [Errno 2] No such file or directory...
    """

    def __init__(self, warn: Callable[[str], Any], raise_errors: bool = False) -> None:
        self.warn, self._raise_errors = warn, raise_errors
        self._seen: set[str] = set()

    def __call__(self, part: Callable[[], Any]) -> None:
        """Run a function."""
        try:
            part()
        except Exception as error:
            if self._raise_errors:
                raise
            text = f"{type(error).__name__}: {error}" if isinstance(error, OSError) else traceback.format_exc()
            kind = f"{type(error).__name__} {getattr(error, 'errno', text)}"
            if kind not in self._seen:
                self._seen.add(kind)
                self.warn(f"part of an evaluation could not be shown or written. {text}")

    def start(self) -> None:
        """Begin a new fit, in which each kind of error is warned of again."""
        self._seen.clear()


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


class Jobs:
    """Runs jobs in the worker process if it is ready, else inline.

    Args:
        attempt: guards what runs here.
        loggers: of the run; what they get afterwards goes into a row of its own.
        parallel: whether to use the worker process; `worker.deliver` must then be called often.
    """

    def __init__(self, attempt: Attempt, loggers: Loggers, parallel: bool) -> None:
        self._attempt, self._loggers, self._parallel = attempt, loggers, parallel

    def start(self) -> None:
        """Start the worker process for later jobs."""
        if self._parallel:
            self._attempt(worker.start)

    @property
    def ready(self) -> bool:
        """Whether the worker process takes jobs."""
        running = worker.running()
        return self._parallel and running is not None and running.ready

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
            self._warn_of_loss()
            self._attempt(lambda: then(result()))
            self._loggers.finish_evaluation(step)  # what the training logs next must not come into the same row

        self._warn_of_loss()
        running = worker.running()
        if running is not None and self.ready and not inline:
            with suppress(Exception):  # what pickle does not take runs here
                running.submit(key, partial(Settings.current().call, work), take, may_skip=key[0] == "figure")
                return
        self._attempt(lambda: then(work()))

    def _warn_of_loss(self) -> None:
        running = worker.running()
        if running is not None and running.lost:
            running.lost = False
            self._attempt(
                lambda: self._attempt.warn(
                    "the process that draws figures died, so training now waits for each figure."
                )
            )
