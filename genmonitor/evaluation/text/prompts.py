# SPDX-License-Identifier: Apache-2.0
"""How messages name prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from genmonitor.evaluation.prompts.changes import Change

NAMED = 5
"""Further prompts that an alert names."""


def quoted(prompt: object) -> str:
    """Return a prompt in quotes, cut where it is long."""
    # repr, since what a prompt holds must not move a terminal's cursor
    text = str(prompt)
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def named(change: Change, by_prompt: bool) -> str:
    """Say which samples have changed: those of a prompt, or all."""
    return f"prompt {quoted(change.prompt)}" if by_prompt else change.prompt


def others(changes: Sequence[Change], value: Callable[[Change], str]) -> str:
    """Name the prompts after the first, with a value each; "" where there are none.

    Example:
        >>> others([Change("a", 0.1, 1, 0, 0), Change("b", 0.2, 1, 0, 0)], lambda change: str(change.now))
        "; so did 'b' (0.2)"
    """
    if len(changes) < 2:
        return ""
    some = [f"{quoted(change.prompt)} ({value(change)})" for change in changes[1 : NAMED + 1]]
    more = f" and {len(changes) - 1 - NAMED} more" if len(changes) > NAMED + 1 else ""
    return f"; so did {', '.join(some)}{more}"
