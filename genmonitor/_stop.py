# SPDX-License-Identifier: Apache-2.0
"""Leaving an evaluation if the training around it was told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any


class StopEvaluation(BaseException):
    """The training was told to stop. It is not an Exception, so that handlers of failed parts let it pass."""


_asked: ContextVar[tuple[Callable[[], bool], bool] | None] = ContextVar("asked", default=None)
_waiting: ContextVar[list[int] | None] = ContextVar("waiting", default=None)
"""Signals that came in the surrounding block whose handlers wait; None outside of one."""
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
"""Signals that ask a training to stop or to save itself; Windows lacks the last three."""


def _handlers() -> dict[int, Callable[[int, FrameType | None], Any]]:
    """Return the functions that handle signals, which only the main thread may replace."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    known = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    found: dict[int, Any] = {number: signal.getsignal(number) for number in known}
    return {x: by for x, by in found.items() if callable(by) and by is not signal.default_int_handler}


@contextmanager
def _handled(handlers: Mapping[int, Any], by: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Handle these signals by another function inside the block."""
    for number in handlers:
        signal.signal(number, by)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def handlers_wait() -> Iterator[None]:
    """Call handlers of signals at the end of the block, since they may save a training that is changed inside.

    An evaluation inside is left for them.
    """
    handlers = _handlers()
    came: list[int] = []
    token = _waiting.set(came)
    try:
        with _handled(handlers, lambda number, _: came.append(number)):
            yield
    finally:
        _waiting.reset(token)
        for number in came:
            handlers[number](number, None)


@contextmanager
def stops_when(told: Callable[[], bool], *, alone: bool = True) -> Iterator[None]:
    """Leave the block once the training was told to stop: immediately at a signal, else at the next `check_stop`.

    Signals are SIGTERM and those whose handlers wait. Changes by the block must be undone outside of it, as after a
    KeyboardInterrupt.

    Args:
        told: Function that returns True once the training was told to stop.
        alone: True if this process may leave without the others; False if they would wait for it in a collective.

    Raises:
        StopEvaluation: If it was, after the previous handler of the signal has run.
    """
    waiting = _waiting.get()
    token = _asked.set((lambda: bool(waiting) or told(), alone))
    # by default SIGTERM ends the process
    handlers = {x: handler for x, handler in _handlers().items() if waiting is not None or x == signal.SIGTERM}
    inside = True

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal inside
        handlers[number](number, frame)
        if inside:
            inside = False
            raise StopEvaluation

    try:
        with _handled(handlers if alone else {}, leave):
            yield
    finally:
        inside = False
        _asked.reset(token)


@contextmanager
def stops_alone(alone: bool) -> Iterator[None]:
    """Let this process leave the block without the others, which must be told at the end of the block."""
    asked = _asked.get()
    if asked is None or asked[1] or not alone:  # outside of an evaluation it would not be caught
        yield
        return
    with stops_when(asked[0], alone=True):
        yield


def told_to_stop() -> bool:
    """Return True if the surrounding training was told to stop."""
    asked = _asked.get()
    return asked is not None and asked[0]()


def check_stop() -> None:
    """Leave a computation if the training was told to stop; to call between the parts of a long one.

    Raises:
        StopEvaluation: If it was, and other processes do not wait for this one.

    Example:
        >>> check_stop()
        >>> with stops_when(lambda: True):
        ...     check_stop()
        Traceback (most recent call last):
        ...
        genmonitor._stop.StopEvaluation
    """
    asked = _asked.get()
    if asked is not None and asked[1] and asked[0]():
        raise StopEvaluation
