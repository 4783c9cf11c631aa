# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for iterators, caches and files while an evaluation reads."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator
from functools import lru_cache
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from genmonitor.training_state.external_state import state_of_file

RESTARTED: tuple[Any, ...] = (
    *(type(iter(kind())) for kind in (list, tuple, str)),
    *(type(iter(range(size))) for size in (0, 2**70)),
    itertools.count,
    np.random.SeedSequence,
)
"""Iterators and counters whose copies continue independently."""
ITERATING = ("builtins", "itertools", "numpy", "_collections", "_csv", "_struct", "array", "posix", "sqlite3")
"""Modules in C with iterators that cannot start again."""
CACHED = type(lru_cache(len))


def make_stand_in(name: str, value: Any) -> Any:
    """Return a stand-in for an object that reading would exhaust or fill permanently; None for anything else."""
    if isinstance(value, (staticmethod, classmethod)):
        inside = make_stand_in(name, value.__func__)
        return None if inside is None else type(value)(inside)
    if isinstance(value, property):
        inside = make_stand_in(name, value.fget)
        return None if inside is None else value.getter(inside)
    if isinstance(value, CACHED):
        return lru_cache(**value.cache_parameters())(value.__wrapped__)
    if isinstance(value, RESTARTED):
        return _going_on_alone(value, name)
    if isinstance(value, TextIOWrapper) and _hides_position(value):
        return _opened_again(value, name)
    if isinstance(value, Iterator) and type(value).__module__ in ITERATING:
        return _UsedUp(name, type(value).__name__)
    return None


def _going_on_alone(iterator: Any, name: str) -> Any:
    """Return a copy of an iterator; a count is copied by its repr, since Python 3.14 cannot copy it."""
    if not isinstance(iterator, itertools.count):
        return copy.copy(iterator)
    shown = repr(iterator).removeprefix("count")
    try:
        return itertools.count(*ast.literal_eval(shown.replace(")", ",)")))
    except ValueError:  # of other numbers than Python's own
        return _UsedUp(name, "count")


def _hides_position(file: TextIOWrapper) -> bool:
    """Return True for a text file that is read line by line, and False for one that is only written."""
    return not (file.closed or file.writable()) and file.seekable() and state_of_file(file) is None


def _opened_again(file: TextIOWrapper, name: str) -> Any:
    """Return a new handle of a text file, at its beginning."""
    if not isinstance(file.buffer, BufferedReader) or not Path(str(file.name)).is_file():
        return _UsedUp(name, "text file")
    return _Reopened(open(str(file.name), "rb"), encoding=file.encoding, errors=file.errors)


class _Reopened(TextIOWrapper):
    """Text of a file, which closes the file once it is unreferenced."""

    def __del__(self) -> None:
        self.close()


def unwrapped(value: Any) -> Any:
    """Return the function behind a method, a property or a cached function; else the value itself."""
    for kind, attribute in ((CACHED, "__wrapped__"), ((staticmethod, classmethod), "__func__"), (property, "fget")):
        if isinstance(value, kind):
            return unwrapped(getattr(value, attribute))
    return value


class _UsedUp:
    """Stand-in for an iterator that cannot start again, so that nothing is taken from it."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind

    def __iter__(self) -> _UsedUp:
        return self

    def __next__(self) -> Any:
        raise ValueError(
            f"Expected data that can be read again, but `{self.name}` is a {self.kind}, which cannot start again. "
            "Reading it would take items from the training. Create it in `__iter__`, or give `real_images=` a separate "
            "Dataset or tensor."
        )

    send = throw = __getitem__ = lambda self, *_: next(self)
