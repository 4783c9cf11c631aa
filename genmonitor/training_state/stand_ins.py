# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for iterators and caches while an evaluation reads."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, partial
from io import IOBase
from types import MappingProxyType
from typing import Any

import numpy as np

from genmonitor.training_state.entries import state_of_file
from genmonitor.training_state.rng import METHODS, parts_of

RESTARTED: tuple[Any, ...] = (
    *(type(iter(kind())) for kind in (list, tuple, str)),
    type(iter(range(0))),
    itertools.count,
)
"""Iterators and counters whose copies continue independently."""
READ_ONLY = (tuple, frozenset, MappingProxyType, partial, *METHODS, np.ndarray, np.random.Generator)
"""Containers whose items are not restored, but what these hold."""
MAX_ITEMS = 1000
"""Largest number of items of a container to search."""
CACHED = type(lru_cache(len))


def make_stand_in(name: str, value: Any, copies: bool = False) -> Any:
    """Return a stand-in for an object that reading would exhaust or fill permanently; None for anything else.

    Args:
        name: Name in errors.
        value: Object, or a tuple that holds such objects.
        copies: True for copies of iterators, or stand-ins that count what is taken from those that cannot be copied.
    """
    if isinstance(value, RESTARTED):
        with suppress(TypeError):  # Python 3.14 copies no count
            return copy.copy(value)
    if isinstance(value, tuple):
        inside = [make_stand_in(name, part, copies) for part in parts_of(value, MAX_ITEMS)]
        replaced = [part if other is None else other for part, other in zip(value, inside, strict=False)]
        return tuple.__new__(type(value), replaced) if any(other is not None for other in inside) else None
    if copies:
        return counted(value)
    if isinstance(value, (staticmethod, classmethod)):
        function = make_stand_in(name, value.__func__)
        return None if function is None else type(value)(function)
    if isinstance(value, CACHED):
        return lru_cache(**value.cache_parameters())(value.__wrapped__)
    if _is_iterator(value) or _is_read_once(value):
        return _UsedUp(name, type(value).__name__)
    return None


def _is_iterator(value: Any) -> bool:
    """Return True for an iterator that cannot start again."""
    modules = ("builtins", "itertools", "numpy", "_collections", "_csv", "array", "torch.utils.data.dataloader")
    return isinstance(value, Iterator) and type(value).__module__ in modules


def _is_read_once(value: Any) -> bool:
    """Return True for a file without a position, such as a pipe or a text file that is gone over line by line."""
    if not isinstance(value, IOBase) or value.closed or not value.readable() or value.writable():
        return False
    return state_of_file(value) is None


def unwrapped(value: Any) -> Any:
    """Return the function behind a static, class or cached function; else the value itself."""
    for kind, attribute in ((CACHED, "__wrapped__"), ((staticmethod, classmethod), "__func__")):
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
    """Return True if items of an iterator that cannot be copied are gone, also of one inside a tuple."""
    if isinstance(stand_in, _Counted):
        return stand_in.taken > 0
    return isinstance(stand_in, tuple) and any(map(is_used, stand_in))


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
