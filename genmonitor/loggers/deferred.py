# SPDX-License-Identifier: Apache-2.0
"""What is made beside the training where that can be, and handed on when it is done."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from genmonitor.loggers import background
from genmonitor.loggers.attempt import Attempt
from genmonitor.loggers.facade import Loggers
from genmonitor.plotting.settings import Settings


class Deferred:
    """Has things made in a process beside this one once that is ready, and until then here.

    Args:
        attempt: makes something here.
        loggers: of the run; what they get afterwards goes into a row of its own.
        beside: whether there may be such a process; somebody then calls `background.deliver` often.
    """

    def __init__(self, attempt: Attempt, loggers: Loggers, beside: bool) -> None:
        self._attempt, self._loggers, self._beside = attempt, loggers, beside

    def start(self) -> None:
        """Start the process for what comes later."""
        if self._beside:
            self._attempt(background.start)

    @property
    def ready(self) -> bool:
        """Whether the process takes what comes now."""
        running = background.running()
        return self._beside and running is not None and running.ready

    def __call__(
        self,
        key: tuple[Any, ...],
        step: int,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        here: bool = False,
    ) -> None:
        """Do the work, and then something here with what it returned.

        Args:
            key: of what it is; what still waits under the same key is dropped for it.
            step: of the evaluation that it is of.
            work: what pickle takes is done beside.
            then: called with what the work returned.
            here: do it here in any case.
        """

        def take(result: Callable[[], Any]) -> None:
            self._attempt(lambda: then(result()))
            self._loggers.finish_evaluation(step)  # what the training logs next must not come into the same row

        running = background.running()
        if running is not None and self.ready and not here:
            with suppress(Exception):  # what pickle does not take is done here
                running.submit(key, partial(Settings.current().call, work), take, may_skip=key[0] == "figure")
                return
        self._attempt(lambda: then(work()))
