# SPDX-License-Identifier: Apache-2.0
"""Progress on a terminal: the current step, its time, and bars."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from genmonitor._io import Progress, no_progress, terminal_progress


def progress_shows(shows: bool) -> None:
    """Turn progress on or off."""
    global _shows
    _shows = shows


_shows = True


@contextmanager
def show_progress(description: str, piped: bool = True) -> Iterator[Progress]:
    """Show the current step on standard error until the block ends, as one line if it is no terminal.

    Args:
        description: Description of the step, such as "reading images".
        piped: True to print that line.

    Yields:
        A function that wraps an iterable in a bar below that line.
    """
    if not (_shows and sys.stderr.isatty()):
        if _shows and piped:
            print(f"{description} …", file=sys.stderr, flush=True)
        yield no_progress
        return
    from tqdm import tqdm

    with tqdm(total=0, desc=description, bar_format="{desc} ({elapsed})", leave=False):
        yield terminal_progress
