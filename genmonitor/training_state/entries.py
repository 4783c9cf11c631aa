# SPDX-License-Identifier: Apache-2.0
"""Entries: the remembered state of one object, its names, items, values or position, and its restoration."""

from __future__ import annotations

import ctypes
import operator
import pickle
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import SEEK_END
from multiprocessing.managers import DictProxy, ListProxy
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.parameter import is_lazy

from genmonitor.training_state.fingerprints import BLOCK, are_equal, fingerprint
from genmonitor.training_state.rng import State, slots_of

CONTAINERS = (OrderedDict, dict, list, set, deque, bytearray)
"""Containers to refill, with subclasses; an OrderedDict has an order that the methods of `dict` do not see."""


@dataclass(frozen=True)
class Entry:
    """State of one object: its name, a check for changes, and a function that restores it."""

    name: str | Callable[[], str]
    moved: Callable[[], bool | None]
    put_back: Callable[[], Any]

    @classmethod
    def of(cls, name: str, state: State, same: Callable[[Any, Any], bool] = operator.eq) -> Entry:
        """Make it from a getter, a setter, and a comparison of two readings."""
        get, put = state
        before = get()
        return cls(name, lambda: not same(get(), before), lambda: put(before))


@dataclass(frozen=True)
class Names:
    """Bindings of names: attributes of an object or a class, cells of a closure, global variables."""

    read: Callable[[], Mapping[str, Any]]
    bind: Callable[[str, Any], Any]
    unbind: Callable[[str], Any]

    @classmethod
    def of(cls, namespace: dict[str, Any]) -> Names:
        """Make it from a dictionary of attributes or variables."""
        return cls(lambda: namespace, namespace.__setitem__, namespace.__delitem__)

    def moved(self, before: Mapping[str, Any]) -> list[str]:
        """Return the names that were rebound or newly bound."""
        now = dict(self.read())
        return [x for x in {**before, **now} if x not in now or x not in before or now[x] is not before[x]]

    def put_back(self, before: Mapping[str, Any]) -> None:
        """Restore the bindings of the names."""
        for name in self.moved(before):
            self.bind(name, before[name]) if name in before else self.unbind(name)


# names


def names_of_slots(thing: Any) -> Names:
    """Return the attributes of an object outside of its `__dict__`."""
    return Names(partial(slots_of, thing), partial(object.__setattr__, thing), partial(object.__delattr__, thing))


def names_of_class(kind: type) -> Names:
    """Return the settable attributes of a class."""

    def read() -> dict[str, Any]:
        return {name: value for name, value in vars(kind).items() if not _is_fixed(name)}

    return Names(read, partial(setattr, kind), partial(delattr, kind))


def _is_fixed(name: str) -> bool:
    return name.startswith("__") and name not in ("__getitem__", "__getitems__", "__iter__", "__call__", "__len__")


# containers


def entry_of_items(name: str, kind: Any, container: Any) -> Entry:
    """Return an entry for the items of a container and their order."""
    return Entry.of(name, (partial(items_of, kind, container), partial(_refill, kind, container)), _are_same)


def entry_of_records(name: str, records: list[Any]) -> Entry:
    """Return an entry for the items of each of several dictionaries and lists."""
    return Entry.of(name, (lambda: [record.copy() for record in records], partial(_refill_each, records)))


def items_of(kind: Any, container: Any) -> list[list[Any]]:
    """Return the items of a container, or its keys and values, by the methods of its base type."""
    if issubclass(kind, dict):
        return [list(kind.keys(container)), list(kind.values(container))]
    return [list(kind.__iter__(container))]


def exchange(kind: Any, container: Any, pairs: list[tuple[Any, Any]]) -> None:
    """Put other objects in the place of items of a container with keys, which may be iterated over meanwhile."""
    others = {id(old): new for old, new in pairs}
    *keys, items = items_of(kind, container)
    for key, item in zip(*(keys or [list(range(len(items)))]), items, strict=True):
        if id(item) in others:
            kind.__setitem__(container, key, others[id(item)])


def _are_same(now: list[list[Any]], before: list[list[Any]]) -> bool:
    pairs = zip(now, before, strict=True)
    return len(now[0]) == len(before[0]) and all(all(map(operator.is_, *pair)) for pair in pairs)


def _refill(kind: Any, container: Any, items: list[list[Any]]) -> None:
    """Restore the items of a container in their order."""
    kind.clear(container)
    if issubclass(kind, dict):
        for name, value in zip(*items, strict=True):
            kind.__setitem__(container, name, value)
    else:
        (kind.update if kind is set else kind.extend)(container, *items)


def _refill_each(records: list[Any], items: list[Any]) -> None:
    for record, before in zip(records, items, strict=True):
        record.clear()
        (record.update if type(record) is dict else record.extend)(before)


# tensors and arrays


def entry_of_tensor(name: str, tensor: Tensor) -> tuple[Entry, list[Any]]:
    """Return an entry for a tensor without its values, and the objects that it holds."""
    leaf, own_memory = tensor.is_leaf, type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
    memory = tensor.detach() if own_memory and not is_lazy(tensor) else None
    bound = {name: getattr(tensor, name) for name in ("grad", "requires_grad")} if leaf else {}  # others have none
    hooks = _hooks_of(tensor)

    def moved() -> bool:
        if memory is not None and not (tensor.dtype is memory.dtype and tensor.is_set_to(memory)):
            return True
        rebound = leaf != tensor.is_leaf or any(getattr(tensor, name) is not value for name, value in bound.items())
        return rebound or _hooks_of(tensor) != hooks

    def put_back() -> None:
        if memory is not None:
            tensor.data = memory
        if leaf and not tensor.is_leaf:
            tensor.detach_()
        for name, value in bound.items():
            setattr(tensor, name, value)
        for name, held in hooks.items():
            if (now := getattr(tensor, name)) is not None:
                _refill(OrderedDict, now, [list(held), list(held.values())])

    return Entry(name, moved, put_back), list(bound.values())


def _hooks_of(tensor: Tensor) -> dict[str, dict[Any, Any]]:
    """Return the hooks of a tensor, which has no dictionary of them before the first."""
    names = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return {name: dict(getattr(tensor, name) or {}) for name in names}


def entry_of_values(name: str, values: Any, copied: bool) -> Entry:
    """Return an entry for the values of bytes or an array, by a copy on the CPU or a fingerprint."""
    if not copied:
        return Entry.of(name, (partial(fingerprint, values), lambda before: None))
    if isinstance(values, np.ndarray):
        return Entry.of(name, (values.copy, partial(_fill_array, values)), _are_equal_arrays)
    storage, end = values.untyped_storage(), values.storage_offset() + len(values)
    saved = values.to("cpu", copy=True)
    seen = None if values.device.type == "cpu" or len(values) <= BLOCK else fingerprint(values)

    def moved() -> bool:
        if storage.nbytes() < end:
            return True
        return not are_equal(values.cpu(), saved) if seen is None else fingerprint(values) != seen

    def put_back() -> None:
        if storage.nbytes() < end:
            storage.resize_(end)
        values.copy_(saved)  # what is read-only cannot have changed

    return Entry(name, moved, put_back)


def _are_equal_arrays(now: Any, before: Any) -> bool:
    return now.shape == before.shape and now.tobytes() == before.tobytes()


def _fill_array(values: Any, before: Any) -> None:
    if values.shape != before.shape:
        values.resize(before.shape, refcheck=False)
    values[...] = before


# files


def state_of_file(thing: Any) -> State | None:
    """Return getter and setter of the position of a file; None for anything else, and for a file that has none."""
    kind = type(thing)
    if not all(hasattr(kind, name) for name in ("tell", "seek", "readable", "closed")):
        return None
    if thing.closed or not (thing.seekable() and thing.readable()):
        return None
    with suppress(OSError):  # of a text file that is gone over line by line
        position = thing.tell()
        if not thing.writable():
            return thing.tell, thing.seek
        end = _end_of(thing)  # of a file that grew, what was written stays
        return lambda: thing.tell() if _end_of(thing) == end else position, thing.seek
    return None


def _end_of(file: Any) -> int:
    position, end = file.tell(), file.seek(0, SEEK_END)
    file.seek(position)
    return int(end)


# memory that processes share


def state_of_shared(thing: Any) -> State | None:
    """Return getter and setter of what `multiprocessing` shares between processes; None for anything else."""
    if isinstance(thing, ListProxy):
        return lambda: thing[:], partial(thing.__setitem__, slice(None))
    if isinstance(thing, DictProxy):
        return thing.copy, partial(_refill_proxy, thing)
    shared = thing.get_obj() if hasattr(thing, "get_obj") else thing
    if isinstance(shared, (ctypes._SimpleCData, ctypes.Array, ctypes.Structure)):
        size = ctypes.sizeof(shared)
        return partial(bytes, shared), lambda saved: ctypes.memmove(ctypes.addressof(shared), saved, size)
    return None


def _refill_proxy(proxy: Any, items: Mapping[Any, Any]) -> None:
    proxy.clear()
    proxy.update(items)


# any state that can be read and set


def entry_of_state(name: str, state: State) -> Entry:
    """Return an entry for a state by its getter and setter."""
    return Entry.of(name, state, lambda now, before: bool(_packed(now) == _packed(before)))


def _packed(state: Any) -> Any:
    """Return a state in a form that can be compared."""
    if isinstance(state, Tensor):
        return state.cpu().numpy().tobytes()
    return tuple(map(_packed, state)) if isinstance(state, (list, tuple)) else pickle.dumps(state)
