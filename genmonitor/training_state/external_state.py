# SPDX-License-Identifier: Apache-2.0
"""State outside of Python attributes: positions of files, and memory of C, multiprocessing and torch."""

from __future__ import annotations

import ctypes
import pickle
from array import array
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from io import SEEK_END, BytesIO, IOBase, StringIO
from mmap import mmap
from multiprocessing.managers import DictProxy, ListProxy
from tempfile import _TemporaryFileWrapper
from typing import Any

import numpy as np
from torch import Tensor

from genmonitor.training_state.rng import State

FILES = (IOBase, mmap, _TemporaryFileWrapper)
C_TYPES = (ctypes._SimpleCData, ctypes.Array, ctypes.Structure)


def external_state(thing: Any) -> State | None:
    """Return getter and setter of the state of an object outside of Python attributes; None if it has none."""
    kind = type(thing)
    if isinstance(thing, FILES) or all(hasattr(kind, x) for x in ("tell", "seek", "readable", "closed")):
        return state_of_file(thing)
    if isinstance(thing, (array, ListProxy)):
        return lambda: thing[:], partial(thing.__setitem__, slice(None))
    if isinstance(thing, DictProxy):
        return thing.copy, partial(_refill_proxy, thing)
    shared = thing.get_obj() if hasattr(thing, "get_obj") else thing  # of multiprocessing
    if isinstance(shared, C_TYPES):
        size = ctypes.sizeof(shared)
        return partial(bytes, shared), lambda saved: ctypes.memmove(ctypes.addressof(shared), saved, size)
    return None


def is_shared(thing: Any) -> bool:
    """Return True for memory that other processes may write, of multiprocessing or torch, also if lent to an array."""
    if isinstance(thing, Tensor):
        return thing.device.type == "cpu" and thing.is_shared()
    if isinstance(thing, np.ndarray):
        return is_shared(thing.base) if isinstance(thing.base, (np.ndarray, Tensor)) else thing.base is not None
    return hasattr(thing, "get_obj") or isinstance(thing, (DictProxy, ListProxy, *C_TYPES))


def state_of_file(file: Any) -> State | None:
    """Return getter and setter of the position of a file or of mapped memory; None if it has none."""
    in_memory = isinstance(file, (mmap, BytesIO, StringIO))
    if file.closed or not (in_memory or (file.seekable() and file.readable())):
        return None
    with suppress(OSError):  # of a text file that is gone over line by line
        position = file.tell()
        if in_memory or not file.writable():
            return file.tell, file.seek
        end = _end_of(file)  # of a file that grew, what was written stays
        return lambda: file.tell() if _end_of(file) == end else position, file.seek
    return None


def _end_of(file: Any) -> int:
    position, end = file.tell(), file.seek(0, SEEK_END)
    file.seek(position)
    return int(end)


def _refill_proxy(proxy: Any, items: Mapping[Any, Any]) -> None:
    proxy.clear()
    proxy.update(items)


def are_equal_states(now: Any, before: Any) -> bool:
    """Return True if two readings of a state are the same."""
    return bool(_packed(now) == _packed(before))


def _packed(state: Any) -> Any:
    """Return a state in a form that can be compared."""
    if isinstance(state, Tensor):
        return state.cpu().numpy().tobytes()
    return tuple(map(_packed, state)) if isinstance(state, (list, tuple)) else pickle.dumps(state)
