# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for iterators, caches and files while an evaluation reads."""

from __future__ import annotations

import ast
import copy
import itertools
import tarfile
from collections.abc import Iterator
from functools import lru_cache, partial
from io import BufferedReader, IOBase, TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from genmonitor.training_state.external_state import state_of_file
from genmonitor.training_state.rng import METHODS, parts_of

RESTARTED: tuple[Any, ...] = (
    *(type(iter(kind())) for kind in (list, tuple, str)),
    *(type(iter(range(size))) for size in (0, 2**70)),
    itertools.count,
    np.random.SeedSequence,
)
"""Iterators and counters whose copies continue independently."""
ITERATING = (
    *("builtins", "itertools", "numpy", "_collections", "_csv", "_struct", "array", "posix", "sqlite3"),
    "torch.utils.data.dataloader",
)
"""Modules with iterators that cannot start again."""
READ_ONLY = (
    tuple,
    frozenset,
    MappingProxyType,
    partial,
    *METHODS,
    np.ndarray,
    np.random.Generator,
)
"""Immutable containers."""
MAX_ITEMS = 1000
"""Largest number of items of a container to search."""
CACHED = type(lru_cache(len))


def make_stand_in(name: str, value: Any, copies: bool = False) -> Any:
    """Return a stand-in for an object that reading would exhaust or fill permanently; None for anything else.

    Args:
        name: Name in errors.
        value: Object, or a read-only one that holds such objects.
        copies: True for copies of iterators, or stand-ins that count what is taken from those that cannot be copied.
    """
    if isinstance(value, RESTARTED):
        return _going_on_alone(value, name)
    if isinstance(value, READ_ONLY):
        parts = parts_of(value, MAX_ITEMS)
        inside = [make_stand_in(name, part, copies) for part in parts]
        replaced = [part if other is None else other for part, other in zip(parts, inside, strict=True)]
        return _made_of(value, replaced) if any(other is not None for other in inside) else None
    if copies:
        return counted(value)
    if isinstance(value, (staticmethod, classmethod)):
        inside = make_stand_in(name, value.__func__)
        return None if inside is None else type(value)(inside)
    if isinstance(value, property):
        inside = make_stand_in(name, value.fget)
        return None if inside is None else value.getter(inside)
    if isinstance(value, CACHED):
        return lru_cache(**value.cache_parameters())(value.__wrapped__)
    if isinstance(value, TextIOWrapper) and _hides_position(value):
        return _opened_again(value, name)
    if _is_iterator(value) or _is_pipe(value):
        return _UsedUp(name, type(value).__name__)
    return None


def _made_of(value: Any, parts: list[Any]) -> Any:
    """Return a read-only object with other parts, in the order of `parts_of`."""
    if isinstance(value, (tuple, frozenset)):
        kind: Any = tuple if isinstance(value, tuple) else frozenset
        return kind.__new__(type(value), parts)
    if isinstance(value, MappingProxyType):
        return MappingProxyType(dict(zip(value, parts, strict=True)))
    if isinstance(value, partial):
        function, *rest = parts
        n = len(value.args)
        return partial(function, *rest[:n], **dict(zip(value.keywords, rest[n:], strict=True)))
    if isinstance(value, np.ndarray):
        out = np.empty(len(parts), object)
        for index, part in enumerate(parts):
            out[index] = part
        return out.reshape(value.shape)
    return getattr(parts[0], value.__name__)  # a method


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
    return not file.closed and file.readable() and file.seekable() and state_of_file(file) is None


def _is_iterator(value: Any) -> bool:
    """Return True for an iterator that cannot start again."""
    return isinstance(value, Iterator) and type(value).__module__ in ITERATING


def _is_pipe(value: Any) -> bool:
    """Return True for what is read once, from its beginning to its end."""
    if isinstance(value, IOBase) and not value.closed:
        return value.readable() and not (value.seekable() or value.writable())
    return isinstance(value, tarfile._Stream)  # type: ignore[attr-defined]


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


class _Counted:
    """Stand-in for an iterator that counts what is taken from it."""

    taken = 0

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> Any:
        self.taken += 1
        return next(self.iterator)

    def __len__(self) -> int:
        return len(self.iterator)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of a copy that has no attributes yet
            raise AttributeError(name)
        self.taken += name == "send"  # of a generator
        return getattr(vars(self)["iterator"], name)


def counted(value: Any) -> Any:
    """Return a stand-in that counts what is taken from an iterator; None for anything else."""
    return _Counted(value) if _is_iterator(value) else None


def is_used(stand_in: Any) -> bool:
    """Return True if items of an iterator that cannot be copied are gone, also of one inside a read-only object."""
    if isinstance(stand_in, _Counted):
        return stand_in.taken > 0
    return isinstance(stand_in, READ_ONLY) and any(map(is_used, parts_of(stand_in, MAX_ITEMS)))


class _UsedUp:
    """Stand-in for an iterator that cannot start again, so that nothing is taken from it."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind

    def __iter__(self) -> _UsedUp:
        return self

    def __next__(self, *_: Any, **__: Any) -> Any:
        raise ValueError(
            f"Expected data that can be read again, but `{self.name}` is a {self.kind}, which cannot start again. "
            "Reading it would take items from the training. Create it in `__iter__`, or give `real_images=` a separate "
            "Dataset or tensor."
        )

    __getitem__ = __next__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__next__
