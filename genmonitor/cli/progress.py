# SPDX-License-Identifier: Apache-2.0
"""Progress on a terminal: the current step, how long it has taken, and bars."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it would load torch, which is what there is to wait for
    from genmonitor._io import Progress


def only_first_shows(rank: int) -> None:
    """Let the first of several processes alone show progress."""
    global _shows
    _shows = rank == 0


_shows = True


@contextmanager
def show_progress(description: str) -> Iterator[Progress]:
    """Show the current step on standard error until the block ends; nothing if that is no terminal.

    Args:
        description: of the step, such as "reading images".

    Yields:
        A function that wraps an iterable in a bar below that line.
    """
    if not (_shows and sys.stderr.isatty()):
        yield lambda iterable, description: iter(iterable)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Display(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as display:
        display.add_task(description, total=None)

        def bar(iterable: Iterable[Any], description: str) -> Iterator[Any]:
            task = display.add_task(description, total=len(iterable) if isinstance(iterable, Sized) else None)
            for item in iterable:
                yield item
                display.advance(task)
            display.remove_task(task)

        yield bar
