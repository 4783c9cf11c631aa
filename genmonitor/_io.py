# SPDX-License-Identifier: Apache-2.0
"""Output that must not do harm: files that are complete or not there, lines whose failure stops nothing, progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any


def say(text: str, by: Callable[[str], Any] = print) -> None:
    """Say something as far as that is possible: `print` may meet a full disk, `warnings.warn` may raise its warning.

    Where `by` fails it is tried with ASCII alone, and then stderr is.

    Example:
        >>> say("done")
        done
    """
    plain = text.encode("ascii", "backslashreplace").decode()
    for attempt in (lambda: by(text), lambda: by(plain), lambda: print(plain, file=sys.stderr)):
        with suppress(Exception):
            attempt()
            return


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file, complete or not at all.

    Raises:
        OSError: if it cannot be written; what was there before is still there.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")  # another process may write the same file
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, complete or not at all.

    Raises:
        OSError: if it cannot be written; what was there before is still there.
    """
    atomic_write(path, json.dumps(content, indent=1).encode())


Progress = Callable[[Iterable[Any], str], Iterator[Any]]
"""Wraps an iterable in a progress bar with a description."""


def no_progress(iterable: Iterable[Any], description: str) -> Iterator[Any]:
    """Go over the iterable without a progress bar."""
    return iter(iterable)


def terminal_progress(iterable: Iterable[Any], description: str) -> Iterator[Any]:
    """Show a progress bar in a terminal or a notebook; not in a file, where each step of it would be a line."""
    from tqdm.auto import tqdm

    return iter(tqdm(iterable, desc=description, leave=False, disable=None))
