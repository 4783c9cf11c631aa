# SPDX-License-Identifier: Apache-2.0
"""Showing how far long work is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Progress = Callable[[Iterable[Any], str], Iterator[Any]]
"""Wraps an iterable in a progress bar with a description."""


def no_progress(iterable: Iterable[Any], description: str) -> Iterator[Any]:
    """Go over the iterable without a progress bar."""
    return iter(iterable)


def terminal_progress(iterable: Iterable[Any], description: str) -> Iterator[Any]:
    """Show a progress bar in a terminal or a notebook; not in a file, where each step of it would be a line."""
    from tqdm.auto import tqdm

    return iter(tqdm(iterable, desc=description, leave=False, disable=None))
