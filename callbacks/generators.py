# SPDX-License-Identifier: Apache-2.0
"""Random generators that datasets and modules hold themselves, such as `self.rng = np.random.default_rng(0)`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

DEPTH, MANY, MOST = 6, 64, 10_000
"""How deep they are looked for, in containers of how many parts, and among how many objects."""


def generators_in(thing: Any) -> list[Any]:
    """Return the random generators among the attributes of an object, of their attributes, and so on.

    Example:
        >>> class Noisy:
        ...     def __init__(self):
        ...         self.transforms = [random.Random(0)]
        >>> len(generators_in(Noisy()))
        1
    """
    found: list[Any] = []
    seen: set[int] = set()
    left = [(thing, DEPTH)]
    while left and len(seen) < MOST:
        part, depth = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if _kind(part) is not None:
            found.append(part)
        elif depth:
            left += [(inner, depth - 1) for inner in _parts(part)]
    return found


@contextmanager
def generators_kept(generators: list[Any]) -> Iterator[None]:
    """Put back the states of random generators after the block."""
    states = [(generator, _get(generator)) for generator in generators]
    try:
        yield
    finally:
        for generator, state in states:
            _set(generator, state)


def seed_generators(generators: list[Any], seed: int) -> None:
    """Set the states of random generators."""
    for generator in generators:
        kind = _kind(generator)
        if kind is torch.Generator:
            generator.manual_seed(seed)
        elif kind is np.random.Generator:
            generator.bit_generator.state = type(generator.bit_generator)(seed).state
        else:
            generator.seed(seed % 2**32)


def _kind(thing: Any) -> type | None:
    if isinstance(thing, random.SystemRandom):  # has no state
        return None
    kinds = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
    return next((kind for kind in kinds if isinstance(thing, kind)), None)


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, (list, tuple, Mapping)):
        return list(thing.values() if isinstance(thing, Mapping) else thing) if len(thing) <= MANY else []
    if isinstance(thing, (type, ModuleType, FunctionType, Tensor)):
        return []
    return list(getattr(thing, "__dict__", {}).values())


def _get(generator: Any) -> Any:
    kind = _kind(generator)
    if kind is np.random.Generator:
        return generator.bit_generator.state
    return generator.getstate() if kind is random.Random else generator.get_state()


def _set(generator: Any, state: Any) -> None:
    kind = _kind(generator)
    if kind is np.random.Generator:
        generator.bit_generator.state = state
    elif kind is random.Random:
        generator.setstate(state)
    else:
        generator.set_state(state)
