# SPDX-License-Identifier: Apache-2.0
"""Snapshot: remembers and restores attributes, items of containers, and values of tensors and arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import IOBase
from itertools import chain
from multiprocessing import active_children
from tarfile import TarFile
from threading import Thread
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch._C import DisableTorchFunctionSubclass
from torch.utils.data import DataLoader, Sampler

from genmonitor.training_state.entries import (
    CONTAINERS,
    Entry,
    Names,
    entry_of_items,
    entry_of_records,
    entry_of_state,
    entry_of_tensor,
    entry_of_values,
    exchange,
    items_of,
    names_of_class,
    names_of_slots,
    state_of_file,
    state_of_shared,
)
from genmonitor.training_state.fingerprints import values_in_memory
from genmonitor.training_state.ownership import (
    FOREIGN,
    OURS,
    has_state,
    is_plain,
    is_users_code,
    names_in,
    package_of,
    records_in,
    variables_named,
)
from genmonitor.training_state.rng import MAX_DEPTH, State, is_generator, parts_of, slots_of, state_of, walk
from genmonitor.training_state.stand_ins import MAX_ITEMS, READ_ONLY, counted, is_used, make_stand_in, unwrapped

MAX_RECORDS = 100_000
"""Largest number of items of a longer container of which dictionaries, lists and attributes are remembered."""
MAX_BYTES = 2**28
"""Memory for copies of tensors and arrays other than parameters and buffers: 256 MiB."""


class Snapshot:
    """State of some objects, and of the plain objects and containers that they hold, the nearest first.

    Args:
        owners: Objects of any type whose attributes count, by their names in messages.
        tensor_bytes: Memory for copies of tensors and arrays; for others changes are only detected. None to ignore
            their values.
        known: Objects that are restored elsewhere.
        ours: True to restore objects of this package, and of classes derived from its classes.
        data: True for data that are read. Functions and the global variables that they name count too. Caches of
            `functools` are set aside, and an iterator that cannot start again refuses to continue. Elsewhere it
            continues, and counts as a change that cannot be undone.
        code: True for functions that draw samples. They are treated like data, except that iterators and text files
            continue, and caches keep their content, such as a network that is loaded once.

    Attributes:
        generators: Random generators found in data.
        is_read: True if data were read. Only then are changes of memory shared with loader workers reported. While the
            workers live, that memory is not restored and may change.
        held: All remembered entries.

    Example:
        >>> from types import SimpleNamespace
        >>> owner = SimpleNamespace(count=1, seen=["a"])
        >>> snapshot = Snapshot({"owner": owner})
        >>> owner.count = 2
        >>> owner.seen.append("b")
        >>> snapshot.restore(), owner
        ((['owner.count', 'owner.seen'], []), namespace(count=1, seen=['a']))
    """

    def __init__(
        self,
        owners: Mapping[str, Any],
        tensor_bytes: int | None = MAX_BYTES,
        *,
        known: Iterable[Any] = (),
        ours: bool = True,
        data: bool = False,
        code: bool = False,
    ) -> None:
        self._left, self._ours, self._data, self._code = tensor_bytes, ours, data or code, code
        self._copies = code or not data
        self._set_aside: dict[int, Any] = {}
        self._shares = self._data and any("Manager-" not in child.name for child in active_children())
        self.is_read = False
        self.generators: list[Any] = []
        self._entries: list[Entry] = []
        self._seen = {id(thing) for thing in known}
        self.held: list[Any] = []  # an id is unique only while the object exists
        self.add(owners)

    def add(self, owners: Mapping[str, Any]) -> None:
        """Remember further objects."""
        walk(owners, self._look, self._seen, lambda: len(self._entries))

    def _look(self, name: str, thing: Any, depth: int) -> Iterator[tuple[str, Any]]:
        if not self._ours and depth < MAX_DEPTH and OURS in map(package_of, type(thing).__mro__):
            return
        self.held.append(thing)
        with DisableTorchFunctionSubclass():
            yield from self._remember(name, thing, owner=depth == MAX_DEPTH)

    def add_tensors(self, tensors: Mapping[str, Tensor], values: bool) -> None:
        """Remember the values of further tensors, or all but their values."""
        with DisableTorchFunctionSubclass():
            for name, tensor in tensors.items():
                if id(tensor) in self._seen:
                    continue
                self._seen.add(id(tensor))
                self.held.append(tensor)
                with suppress(Exception):
                    if values:
                        self._values(name, tensor)
                    else:
                        self._entries.append(entry_of_tensor(name, tensor)[0])

    def add_states(self, states: Mapping[str, State], held_by: Any = None) -> None:
        """Remember the results of getters, to restore by setters; those that cannot be read are left out."""
        for name, state in states.items():
            with suppress(Exception):
                self._append(entry_of_state(name, state), held_by)

    def restore(self) -> tuple[list[str], list[str]]:
        """Undo changes; return the names of restored objects, and of those that could not be restored."""
        back: list[str] = []
        stuck: list[str] = []
        with DisableTorchFunctionSubclass():
            for entry in self._entries:
                moved = _ask(entry.moved)
                if moved is False:
                    continue
                name = entry.name if isinstance(entry.name, str) else entry.name()
                with suppress(Exception):
                    entry.put_back()
                if moved:
                    (stuck if _ask(entry.moved) else back).append(name)
        return list(dict.fromkeys(back)), list(dict.fromkeys(stuck))

    def _remember(self, name: str, thing: Any, owner: bool) -> Iterator[tuple[str, Any]]:
        """Add the mutable state of an object; yield the objects that it holds."""
        if isinstance(thing, type):
            if self._counts(thing):
                yield from self._bind(name, names_of_class(thing))
            return
        if isinstance(thing, FunctionType):
            yield from self._function(name, thing) if self._data else _generators_of(name, thing)
            return
        state = state_of(thing) or state_of_file(thing) or (state_of_shared(thing) if self._data else None)
        if state is not None:
            self.add_states({name: state}, held_by=thing)
            self.generators += [thing] if is_generator(thing) else []
            return
        if owner or is_plain(thing) or (self._data and isinstance(thing, (DataLoader, Sampler))):
            yield from self._object(name, thing, owner)
        if self._code and isinstance(thing, nn.Module):  # however deep
            yield from ((f"{name}.{key}", x) for key, x in chain(thing.named_parameters(), thing.named_buffers()))
        yield from self._items(name, thing)
        if issubclass(type(thing), Tensor):
            entry, held = entry_of_tensor(name, thing)
            self._entries.append(entry)
            yield from ((name, part) for part in held)
        self._values(name, thing, always=owner)
        if self._data:
            self._table(name, thing)

    def _append(self, entry: Entry, thing: Any) -> None:
        """Remember the mutable state of an object; it is not written to if workers may read it meanwhile."""
        if self._shares and _is_shared(thing):
            moved = entry.moved
            entry = replace(entry, moved=lambda: self.is_read and moved(), put_back=lambda: None)
        self._entries.append(entry)

    def _object(self, name: str, thing: Any, owner: bool) -> Iterator[tuple[str, Any]]:
        namespace = getattr(thing, "__dict__", {})
        moving = (IOBase, Thread) if self._data else (IOBase, Thread, Iterator)
        held = [x for x in (thing, *namespace.values()) if isinstance(x, moving)]
        own = owner or has_state(thing) or (self._data and _reads(thing, held))
        if held and not own:  # all or nothing, since a reader at another position of its file would read wrongly
            for key, value in [*namespace.items()] if not self._data else []:
                self._replace(_dotted(name, key), Names.of(namespace), key, counted(value))
            return
        yield from self._bind(name, Names.of(namespace))
        yield from self._bind(name, names_of_slots(thing))
        yield from ((kind.__name__, kind) for kind in type(thing).__mro__ if self._counts(kind))

    def _function(self, name: str, function: Any) -> Iterator[tuple[str, Any]]:
        """Remember a user's function: its closure, attributes and the global variables that it names.

        Variables of the user's modules that it names count too.
        """
        if not is_users_code(function.__module__):
            return
        named = names_in(function.__code__)
        variables = variables_named(function.__globals__, named)
        yield from self._bind(function.__module__, variables)
        for value in variables.read().values():
            if isinstance(value, ModuleType) and is_users_code(value.__name__):
                yield from self._bind(value.__name__, variables_named(vars(value), named))
        yield from self._bind(name, Names.of(vars(function)))
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield from self._bind(f"{name}.{variable}", names_of_slots(cell))
        yield from self._bind(name, names_of_slots(function))

    def _bind(self, name: str, names: Names) -> Iterator[tuple[str, Any]]:
        """Remember the bindings of names, and set aside objects that reading would exhaust; yield the objects."""
        before = dict(names.read())
        place = partial(_dotted, name)
        for key, value in before.items():
            if id(value) in self._set_aside:  # by another function with the same variable
                before[key] = self._set_aside[id(value)]
            else:
                self._replace(place(key), names, key, make_stand_in(place(key), value, self._copies))
        moved = partial(names.moved, before)
        self._entries.append(
            Entry(lambda: ", ".join(map(place, moved())), lambda: bool(moved()), lambda: names.put_back(before))
        )
        for key, value in before.items():
            yield place(key), unwrapped(value) if self._data else value

    def _replace(self, name: str, names: Names, key: str, stand_in: Any) -> None:
        """Bind a name to a stand-in until `restore`, unless that is None."""
        if stand_in is not None:
            self._set_aside[id(stand_in)] = value = names.read()[key]
            self._entries.append(
                Entry(f"the iterator {name}", partial(_used, [stand_in]), partial(names.bind, key, value))
            )
            names.bind(key, stand_in)

    def _items(self, name: str, thing: Any) -> Iterator[tuple[str, Any]]:
        """Remember the items of a container; yield them."""
        kind = type(thing)  # for a proxy, `isinstance` checks its target
        if of := next((of for of in CONTAINERS if issubclass(kind, of)), None):
            items = items_of(of, thing)
            entry = entry_of_items(name, of, thing)
            if len(items[0]) <= MAX_ITEMS and of is not set:
                others = [(x, make_stand_in(name, x, self._copies)) for x in items[-1]]
                pairs = [(x, other) for x, other in others if other is not None]
                back = [(other, x) for x, other in pairs]
                used = partial(_used, [other for _, other in pairs])
                self._entries.append(Entry(f"an iterator in {name}", used, partial(exchange, of, thing, back)))
                exchange(of, thing, pairs)
            self._entries.append(entry)
        elif issubclass(kind, READ_ONLY):
            items = [parts_of(thing, MAX_RECORDS)]
        else:
            return
        if MAX_ITEMS < len(items[0]) <= MAX_RECORDS:
            self._entries.append(entry_of_records(name, records_in(items[-1])))
        for part in chain(*(some[:MAX_ITEMS] for some in items)):
            yield name, unwrapped(part) if self._data else part

    def _values(self, name: str, thing: Any, always: bool = False) -> None:
        """Remember the values of a tensor or an array, `always` or as far as the memory allows."""
        if self._left is None:
            return
        for values in values_in_memory(thing):
            fits = values.nbytes <= self._left
            self._left -= values.nbytes if fits and not always else 0
            self._append(entry_of_values(name, values, always or fits), thing)

    def _table(self, name: str, thing: Any) -> None:
        """Remember the values of a table or column of pandas, as far as the memory allows."""
        pandas = sys.modules.get("pandas")
        if pandas is None or self._left is None or not isinstance(thing, (pandas.DataFrame, pandas.Series)):
            return
        size = int(np.sum(thing.memory_usage()))
        if size <= self._left:
            self._left -= size
            state = thing.copy, partial(type(thing).__init__, thing)
            self._entries.append(Entry.of(name, state, lambda now, before: now.equals(before)))

    def _counts(self, kind: type) -> bool:
        """Return True if the attributes of a class are the user's own."""
        if self._data:
            return is_users_code(kind.__module__)
        return package_of(kind) not in (*FOREIGN, OURS)


def _is_shared(thing: Any) -> bool:
    """Return True for memory that other processes may write, of `multiprocessing`, torch or an array around it."""
    if isinstance(thing, Tensor):
        return thing.device.type == "cpu" and thing.is_shared()
    if isinstance(thing, np.ndarray):
        return _is_shared(thing.base) if isinstance(thing.base, (np.ndarray, Tensor)) else thing.base is not None
    return state_of_shared(thing) is not None


def _generators_of(name: str, function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the random generators that a function holds; what else it holds stays as it leaves it."""
    cells = (slots_of(cell).get("cell_contents") for cell in function.__closure__ or ())
    for held in (*cells, *(function.__defaults__ or ())):
        if is_generator(held) or isinstance(held, np.random.Generator):
            yield name, held


def _reads(thing: Any, held: list[Any]) -> bool:
    """Return True for a reader whose state is in its attributes and in the positions of its files."""
    known = isinstance(thing, TarFile) or is_users_code(type(thing).__module__)
    return known and all(state_of_file(x) is not None and not x.writable() for x in held)


def _used(stand_ins: list[Any]) -> bool | None:
    """Return True if items of an iterator are gone for good, and None otherwise: the original comes back anyway."""
    return any(map(is_used, stand_ins)) or None


def _ask(question: Callable[[], bool | None]) -> bool | None:
    """Return the result of a call; None if it fails, as for a sparse tensor or a proxy of a deleted object."""
    with suppress(Exception):
        return question()
    return None


def _dotted(name: str, key: str) -> str:
    return f"{name}.{key}".strip(".").removesuffix(".cell_contents").removesuffix(".__defaults__")
