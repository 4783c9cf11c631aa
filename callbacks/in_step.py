# SPDX-License-Identifier: Apache-2.0
"""Keeping the processes of a run in step: where one fails all of them know, so that none waits for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")


class FailedElsewhereError(RuntimeError):
    """Another process failed in the same step; it is the one that says why."""


def in_step(trainer: Any, work: Callable[[], _T]) -> _T:
    """Do this process's part of a step; every process must call it, and raises if any of them failed.

    Args:
        trainer: whose processes they are.
        work: talks to the other processes before anything that may fail on one alone, or not at all.

    Returns:
        What `work` returned.

    Raises:
        FailedElsewhereError: if it was another process that failed; this one raises what `work` raised.
    """
    everywhere = partial(trainer.strategy.reduce_boolean_decision, all=True)
    try:
        result = work()
    except Exception:
        everywhere(False)
        raise
    if not everywhere(True):
        raise FailedElsewhereError("Another process failed, so this one stops here too.")
    return result


def on_rank_zero(trainer: Any, work: Callable[[], _T]) -> _T:
    """Do local work once and give its result, or its error, to every process; every process must call it."""
    outcome: Any = None
    if trainer.is_global_zero:
        try:
            outcome = work()
        except Exception as error:
            outcome = error
    outcome = trainer.strategy.broadcast(outcome, src=0)
    if isinstance(outcome, Exception):
        raise outcome
    result: _T = outcome
    return result
