# SPDX-License-Identifier: Apache-2.0
"""Safe output: complete files, lines whose failure stops nothing, deferred signals, progress bars."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unicodedata import category


def say(text: str, by: Callable[[str], Any] = print) -> None:
    """Show a text as far as possible: `print` may fail on a full disk, and `warn` may raise its warning.

    If `by` fails, it is tried with ASCII only, and then stderr.

    Example:
        >>> say("done")
        done
    """
    plain = text.encode("ascii", "backslashreplace").decode()
    for attempt in (lambda: by(text), lambda: by(plain), lambda: print(plain, file=sys.stderr)):
        with suppress(Exception):
            attempt()
            return


def warn(text: str) -> None:
    """Warn without a line of this package's source, which `warnings.warn` would show."""
    warnings.warn_explicit(text, UserWarning, "genmonitor", 1, registry=_WARNED)


_WARNED: dict[Any, Any] = {}


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file, complete or not at all.

    Raises:
        OSError: If it cannot be written; the previous file remains.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")  # another process may write the same file
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def clean(text: str) -> str:
    r"""Return text that UTF-8 can hold, with escapes for half an emoji or bytes of file names that are not text.

    Example:
        >>> print(clean("a cat " + chr(0xD83D)))
        a cat \ud83d
    """
    return text.encode("utf-8", "backslashreplace").decode()


def printable(text: str) -> str:
    r"""Return text without characters that move the cursor or change the writing direction; lines are kept.

    Example:
        >>> print(printable("a cat\x1b[2J"))
        a cat\ufffd[2J
    """
    hidden = ("Cc", "Cf")
    return "".join("\N{REPLACEMENT CHARACTER}" if c != "\n" and category(c) in hidden else c for c in text)


COLORS = {"ALERT": "1;31", "worse": "31", "better": "32", "recovered": "32"}
"""Colors of words in a terminal, by their numbers there."""


def colored(line: str) -> str:
    """Return a line with its first word of `COLORS` in color; the line itself outside of a terminal.

    Example:
        >>> colored("epoch 3   better")  # a doctest's output is no terminal
        'epoch 3   better'
    """
    if "NO_COLOR" in os.environ or not (sys.stdout.isatty() and sys.stderr.isatty()):
        return line
    return re.sub("|".join(COLORS), lambda word: f"\x1b[{COLORS[word[0]]}m{word[0]}\x1b[0m", line, count=1)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, complete or not at all; invalid text becomes its escape.

    Raises:
        OSError: If it cannot be written; the previous file remains.
    """
    atomic_write(path, clean(text).encode())


def as_json(content: Any, indent: int | None = 1) -> str:
    """Return content as portable JSON: numbers that are not finite become null, see `clean` for text.

    Example:
        >>> as_json({"image": float("nan"), "mmd": 0.5}, indent=None)
        '{"image": null, "mmd": 0.5}'
    """
    return json.dumps(_plain(content), indent=indent, allow_nan=False)


def _plain(content: Any) -> Any:
    if isinstance(content, (str, Path)):
        return clean(str(content))
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, Mapping):
        return {clean(str(name)): _plain(value) for name, value in content.items()}
    return list(map(_plain, content)) if isinstance(content, (list, tuple)) else content


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, complete or not at all.

    Raises:
        OSError: If it cannot be written; the previous file remains.
    """
    write_text(path, as_json(content))


def read_json(path: Path) -> Any:
    """Read a JSON file; None if it is missing or incomplete."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


@contextmanager
def signals_deferred(*numbers: signal.Signals) -> Iterator[None]:
    """Delay signals until the block has ended, by default Ctrl-C and SIGTERM."""
    handlers = {number: signal.getsignal(number) for number in numbers or (signal.SIGINT, signal.SIGTERM)}
    # only the main thread gets signals; a handler that was not set from Python cannot be restored
    if None in handlers.values() or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    for number in handlers:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in received:
            signal.raise_signal(late)


Progress = Callable[[Iterable[Any], str], Iterator[Any]]
"""Wraps an iterable in a progress bar with a description."""


def no_progress(iterable: Iterable[Any], description: str) -> Iterator[Any]:
    """Iterate without a progress bar."""
    return iter(iterable)


def terminal_progress(iterable: Iterable[Any], description: str) -> Iterator[Any]:
    """Show a progress bar in a terminal or a notebook, but not in a file, where each step would be a line."""
    from tqdm.auto import tqdm

    return iter(tqdm(iterable, desc=description, leave=False, disable=None))
