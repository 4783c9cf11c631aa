# SPDX-License-Identifier: Apache-2.0
"""Leaving an evaluation if the training around it was told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType


class StopEvaluation(BaseException):
    """The training was told to stop. It is not an Exception, so that handlers of failed parts let it pass."""


_asked: ContextVar[tuple[Callable[[], bool], bool] | None] = ContextVar("asked", default=None)


@contextmanager
def stops_when(told: Callable[[], bool], *, alone: bool = True) -> Iterator[None]:
    """Leave the block once the training was told to stop: immediately at SIGTERM, else at the next `check_stop`.

    Changes by the block must be undone outside of it, as after a KeyboardInterrupt.

    Args:
        told: Function that returns True once the training was told to stop.
        alone: True if this process may leave without the others; False if they would wait for it in a collective.

    Raises:
        StopEvaluation: If it was, after the previous handler of SIGTERM has run.
    """
    token, before = _asked.set((told, alone)), signal.getsignal(signal.SIGTERM)
    # by default SIGTERM ends the process; only the main thread may set a handler
    handles = alone and callable(before) and threading.current_thread() is threading.main_thread()
    inside = True

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal inside
        before(number, frame)  # type: ignore[operator, misc]
        if inside:
            inside = False
            raise StopEvaluation

    if handles:
        signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        inside = False
        if handles:
            signal.signal(signal.SIGTERM, before)
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
