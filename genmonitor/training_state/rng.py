# SPDX-License-Identifier: Apache-2.0
"""Random states: the global ones, and those of generators held by datasets and modules."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import chain
from types import (
    BuiltinMethodType,
    CellType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any
from weakref import ProxyTypes

import numpy as np
import torch
from torch import Tensor

MAX_DEPTH, MAX_OBJECTS = 12, 10_000
"""Limits of a walk: depth, and objects below attributes."""


METHODS = (MethodType, BuiltinMethodType, MethodWrapperType)
State = tuple[Callable[[], Any], Callable[[Any], Any]]
"""Getter and setter of a state."""


def seed_everything(seed: int) -> None:
    """Seed the global random states that `preserve_rng` restores: torch (CPU, CUDA, MPS), numpy and python."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def global_states() -> dict[str, State]:
    """Return getters and setters of the global random states, by the name of the library."""
    states: dict[str, State] = {
        "torch": (torch.get_rng_state, torch.set_rng_state),
        "numpy": (np.random.get_state, np.random.set_state),
        "python": (random.getstate, random.setstate),
    }
    if torch.cuda.is_initialized():
        states["CUDA"] = torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all
    if torch.backends.mps.is_available():
        states["MPS"] = torch.mps.get_rng_state, torch.mps.set_rng_state
    return states


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Restore the global random states of torch (CPU, every CUDA device, MPS), numpy and python on exit."""
    before = [(put, get()) for get, put in global_states().values()]
    try:
        yield
    finally:
        for put, state in before:
            put(state)


def walk(
    roots: Mapping[str, Any],
    look: Callable[[str, Any, int], Iterable[tuple[str, Any]]],
    seen: set[int],
    size: Callable[[], int],
) -> None:
    """Visit objects, then the objects that they hold, and so on, the nearest first and each once.

    Args:
        roots: Objects to begin with, by name.
        look: Function of a name, an object and the remaining depth that returns the objects held, by name.
        seen: Ids of objects to leave out, to which visited ones are added.
        size: Limit of the number of objects beyond those that the roots hold directly.
    """
    near = size()
    queue = deque((name, root, MAX_DEPTH) for name, root in roots.items())
    while queue and size() - near < MAX_OBJECTS:
        name, thing, depth = queue.popleft()
        if id(thing) in seen or type(thing) in ProxyTypes:  # the target of a weak reference may be deleted
            continue
        seen.add(id(thing))
        inner: list[tuple[str, Any]] = []
        with suppress(Exception):  # a proxy of a missing object may raise any exception
            inner.extend(look(name, thing, depth))
        queue.extend((*part, depth - 1) for part in inner if depth)
        near = size() if depth >= MAX_DEPTH - 1 else near


def seed_generators(generators: list[Any], seed: int) -> None:
    """Set the states of random generators."""
    for generator in generators:
        kind = _kind(generator)
        if kind is torch.Generator:
            generator.manual_seed(seed)
        elif kind is np.random.BitGenerator:
            generator.state = type(generator)(seed).state
        else:
            generator.seed(seed % 2**32)


def is_generator(thing: Any) -> bool:
    """Return True for a random generator with a state."""
    return _kind(thing) is not None


def _kind(thing: Any) -> type | None:
    of: Any = type(thing)  # mypy takes no class for hashable
    return _kind_of(of)


@lru_cache(maxsize=1000)  # torch's classes are slow to ask, and thousands of objects are
def _kind_of(of: type) -> type | None:
    if issubclass(of, random.SystemRandom):  # has no state
        return None
    kinds = (torch.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)
    return next((kind for kind in kinds if issubclass(of, kind)), None)


def parts_of(thing: Any, most: int) -> list[Any]:
    """Return the parts of an object: items up to a number, attributes, arguments, the object of a method."""
    if isinstance(thing, np.ndarray):
        thing = thing.ravel().tolist() if thing.dtype == object and thing.size <= most else ()
    if isinstance(thing, (list, tuple, set, frozenset, deque, Mapping)):
        return list(thing.values() if isinstance(thing, Mapping) else thing) if len(thing) <= most else []
    if isinstance(thing, partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, METHODS):
        return [thing.__self__]
    if isinstance(thing, np.random.Generator):
        return [thing.bit_generator]
    if isinstance(thing, (type, ModuleType, Tensor)):
        return []
    return [*getattr(thing, "__dict__", {}).values(), *slots_of(thing).values()]


def slots_of(thing: Any) -> dict[str, Any]:
    """Return the bound values of an object outside of its `__dict__`: slots, and cells of a closure."""
    out: dict[str, Any] = {}
    kind: Any = type(thing)  # mypy takes no class for hashable
    for name, place in _places(kind).items():
        with suppress(AttributeError, ValueError):  # of an empty slot, of an empty cell
            out[name] = place.__get__(thing)
    return out


@lru_cache(maxsize=1000)
def _places(kind: type) -> dict[str, Any]:
    """Return the descriptors of attributes of a class outside of `__dict__`."""
    if kind in (FunctionType, CellType):
        holding = ("__closure__", "__defaults__", "__kwdefaults__", "cell_contents")
        return {name: getattr(kind, name) for name in holding if hasattr(kind, name)}
    named = chain(*(vars(base).items() for base in kind.__mro__))
    held = {name: place for name, place in named if isinstance(place, MemberDescriptorType)}
    # those of CPython, such as an offset, are new integers at each access
    return {name: place for name, place in held.items() if not name.startswith("__")}


def state_of(generator: Any) -> State | None:
    """Return getter and setter of the state of a random generator; None for anything else."""
    kind = _kind(generator)
    if kind is None:
        return None
    if kind is np.random.BitGenerator:
        return partial(getattr, generator, "state"), partial(setattr, generator, "state")
    if kind is random.Random:
        return generator.getstate, generator.setstate
    return generator.get_state, generator.set_state
