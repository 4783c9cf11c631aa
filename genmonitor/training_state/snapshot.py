# SPDX-License-Identifier: Apache-2.0
"""Snapshot: what objects hold, to be put back: attributes, items of containers, values of tensors and arrays."""

from __future__ import annotations

import ast
import copy
import ctypes
import itertools
import operator
import pickle
import sys
import sysconfig
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from io import BufferedReader, BytesIO, IOBase, StringIO, TextIOWrapper
from itertools import chain
from mmap import mmap
from multiprocessing import active_children
from multiprocessing.managers import DictProxy, ListProxy
from pathlib import Path
from threading import Thread
from types import BuiltinMethodType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch._C import DisableTorchFunctionSubclass
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.quasirandom import SobolEngine
from torch.utils.data import Dataset

from genmonitor.training_state.fingerprints import BLOCK, are_equal, fingerprint, values_in_memory
from genmonitor.training_state.rng import MAX_DEPTH, State, is_generator, parts_of, slots_of, state_of, walk

CONTAINERS = (OrderedDict, dict, list, set, deque, bytearray)
"""What is refilled, and subclasses of them; an OrderedDict keeps an order that the methods of `dict` do not see."""
READ_ONLY = (
    tuple,
    frozenset,
    MappingProxyType,
    partial,
    MethodType,
    BuiltinMethodType,
    np.ndarray,
    np.random.Generator,
)
"""What holds things, and always the same ones."""
MAX_ITEMS = 1000
"""Number of items up to which a container is looked through for others."""
MAX_RECORDS = 100_000
"""Number of items up to which the dictionaries and lists in a longer container are remembered."""
MAX_BYTES = 2**28
"""Memory for copies of tensors and arrays that are no parameters and no buffers: 256 MiB."""
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""Of a tensor; None before the first."""
RESTARTED: tuple[Any, ...] = (
    *(type(iter(kind())) for kind in (list, tuple, str)),
    *(type(iter(range(size))) for size in (0, 2**70)),
    itertools.count,
    np.random.SeedSequence,
)
"""Iterators, and what counts its children, of which a copy goes on alone."""
ITERATING = ("builtins", "itertools", "numpy", "_collections", "_csv", "_struct", "array", "posix", "sqlite3")
"""Modules in C whose iterators cannot start again."""
C_TYPES = (ctypes._SimpleCData, ctypes.Array, ctypes.Structure)
CACHED = type(lru_cache(len))
OURS = __name__.split(".")[0]
STANDARD = ("builtins", "functools", "typing", "logging", "threading", "queue", "multiprocessing", "concurrent")
FOREIGN = ("torch", "lightning", "pytorch_lightning", "wandb", "mlflow", *STANDARD)
"""Packages whose objects hang on modules without being the user's own state, such as the Trainer, a run or what other
threads fill meanwhile."""
LIBRARIES = ("site-packages", "dist-packages", Path(sysconfig.get_path("stdlib")).name)
"""Parts of the paths of code that is not the user's own."""
OWN_STATE = (nn.Module, Optimizer, LRScheduler, SobolEngine, Dataset)
"""Classes of torch's whose objects count all the same."""


@dataclass(frozen=True)
class _Entry:
    """One thing that can move: its name or what tells it, whether it did, and what puts it back."""

    name: str | Callable[[], str]
    moved: Callable[[], bool | None]
    put_back: Callable[[], Any]

    @classmethod
    def of(cls, name: str, state: State, same: Callable[[Any, Any], bool] = operator.eq) -> _Entry:
        """Make it from what reads and what sets a thing, and what compares two readings."""
        get, put = state
        before = get()
        return cls(name, lambda: not same(get(), before), lambda: put(before))


@dataclass(frozen=True)
class _Names:
    """Names that are bound to things: attributes of an object or a class, cells of a closure, global variables."""

    read: Callable[[], Mapping[str, Any]]
    bind: Callable[[str, Any], Any]
    unbind: Callable[[str], Any]

    @classmethod
    def of(cls, namespace: dict[str, Any]) -> _Names:
        """Make it of a dictionary of attributes or variables."""
        return cls(lambda: namespace, namespace.__setitem__, namespace.__delitem__)

    def moved(self, before: Mapping[str, Any]) -> list[str]:
        """Return the names that are bound to something else by now, or were not bound."""
        now = dict(self.read())
        return [x for x in {**before, **now} if x not in now or x not in before or now[x] is not before[x]]

    def put_back(self, before: Mapping[str, Any]) -> None:
        """Bind the names as they were."""
        for name in self.moved(before):
            self.bind(name, before[name]) if name in before else self.unbind(name)


class Snapshot:
    """What some objects hold, and the plain objects and containers that they hold, the nearest things first.

    Args:
        owners: whose attributes count, whatever their type, by the names that messages use.
        tensor_bytes: memory for copies of tensors and arrays; those beyond it are only told to have moved. None to
            leave their values out.
        known: what somebody else puts back.
        ours: True to put back objects of this package, and of classes that derive from its own.
        data: True for data that are read. Random generators, functions and the global variables that they name count
            too, caches of `functools` are set aside, and an iterator that cannot start again refuses to go on.
        code: True for functions that draw samples: as data, but such an iterator and text files go on, and caches keep
            what they hold, such as a network that is loaded once.

    Attributes:
        generators: random generators that were found in data.
        is_read: whether data were read. Only then is it told that memory moved which loader workers share: as long as
            they live it is not put back, and may move by them.
        held: all that is remembered.

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
        self._shares = self._data and any("Manager-" not in child.name for child in active_children())
        self.is_read = False
        self.generators: list[Any] = []
        self._entries: list[_Entry] = []
        self._seen = {id(thing) for thing in known}
        self.held: list[Any] = []  # an id is a thing's own only as long as that lives
        self.add(owners)

    def add(self, owners: Mapping[str, Any]) -> None:
        """Remember further objects."""
        walk(owners, self._look, self._seen, lambda: len(self._entries))

    def _look(self, name: str, thing: Any, depth: int) -> Iterator[tuple[str, Any]]:
        if not self._ours and depth < MAX_DEPTH and OURS in map(_package, type(thing).__mro__):
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
                        self._entries.append(_entry_of_tensor(name, tensor)[0])

    def add_states(self, states: Mapping[str, State], held_by: Any = None) -> None:
        """Remember what functions read, and put back by others; what cannot be read is left out."""
        for name, state in states.items():
            with suppress(Exception):
                self._append(_Entry.of(name, state, _are_equal_states), held_by)

    def restore(self) -> tuple[list[str], list[str]]:
        """Put back what moved; return the names of what is back, and of what could not be put back."""
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
        """Add what can move of a thing; yield what it holds."""
        if isinstance(thing, type):
            if self._counts(thing):
                yield from self._bind(name, _of_class(thing))
            return
        if self._data and isinstance(thing, FunctionType):
            yield from self._function(name, thing)
            return
        state = state_of(thing) or (_outside_state(thing) if self._data else None)
        if state is not None:
            self.add_states({name: state}, held_by=thing)
            self.generators += [thing] if is_generator(thing) else []
            return
        if owner or _is_plain(thing):
            yield from self._object(name, thing, owner)
        if self._code and isinstance(thing, nn.Module):  # however deep
            yield from ((f"{name}.{key}", x) for key, x in chain(thing.named_parameters(), thing.named_buffers()))
        yield from self._items(name, thing)
        if issubclass(type(thing), Tensor):
            entry, held = _entry_of_tensor(name, thing)
            self._entries.append(entry)
            yield from ((name, part) for part in held)
        self._values(name, thing, always=owner)
        if self._data:
            self._table(name, thing)

    def _append(self, entry: _Entry, thing: Any) -> None:
        """Remember what can move of a thing, and never write to it if workers may read it meanwhile."""
        if self._shares and _is_shared(thing):
            moved = entry.moved
            entry = replace(entry, moved=lambda: self.is_read and moved(), put_back=lambda: None)
        self._entries.append(entry)

    def _object(self, name: str, thing: Any, owner: bool) -> Iterator[tuple[str, Any]]:
        namespace = getattr(thing, "__dict__", {})
        moving = (IOBase, Thread) if self._data else (IOBase, Thread, Iterator)
        if any(isinstance(x, moving) for x in (thing, *namespace.values())) and not (owner or _has_state(thing)):
            return  # all of it or nothing: a reader whose file is elsewhere by now would read wrongly
        yield from self._bind(name, _Names.of(namespace))
        yield from self._bind(name, _of_slots(thing))
        yield from ((kind.__name__, kind) for kind in type(thing).__mro__ if self._counts(kind))

    def _function(self, name: str, function: Any) -> Iterator[tuple[str, Any]]:
        """Remember a function of the user's own: its closure, attributes and the global variables that it names.

        Those of the user's modules that it names count too.
        """
        if not _is_users_code(function.__module__):
            return
        named = _names_in(function.__code__)
        variables = _named_alone(function.__globals__, named)
        yield from self._bind(function.__module__, variables)
        for value in variables.read().values():
            if isinstance(value, ModuleType) and _is_users_code(value.__name__):
                yield from self._bind(value.__name__, _named_alone(vars(value), named))
        yield from self._bind(name, _Names.of(vars(function)))
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield from self._bind(f"{name}.{variable}", _of_slots(cell))
        yield from ((name, value) for value in (*(function.__defaults__ or ()), function.__kwdefaults__ or {}))

    def _bind(self, name: str, names: _Names) -> Iterator[tuple[str, Any]]:
        """Remember what names are bound to, and set aside what reading would use up; yield it."""
        before = dict(names.read())
        place = partial(_place, name)
        used = {key: x for key, x in before.items() if self._data and (isinstance(x, RESTARTED) or not self._code)}
        for key, value in used.items():
            if (stand_in := _stand_in(place(key), value)) is not None:
                self._entries.append(_Entry(place(key), lambda: None, partial(names.bind, key, before[key])))
                names.bind(key, stand_in)
        moved = partial(names.moved, before)
        self._entries.append(
            _Entry(lambda: ", ".join(map(place, moved())), lambda: bool(moved()), lambda: names.put_back(before))
        )
        for key, value in before.items():
            yield place(key), _inside(value) if self._data else value

    def _items(self, name: str, thing: Any) -> Iterator[tuple[str, Any]]:
        """Remember the items of a container; yield them."""
        kind = type(thing)  # of a proxy, `isinstance` asks what stands behind it
        if of := next((of for of in CONTAINERS if issubclass(kind, of)), None):
            items = _items_of(of, thing)
            state = partial(_items_of, of, thing), partial(_refill, of, thing)
            self._entries.append(_Entry.of(name, state, _are_same))
            if len(items[0]) <= MAX_ITEMS:
                yield from ((name, item) for item in chain(*items))
            elif len(items[0]) <= MAX_RECORDS:
                records = [item for item in items[-1] if type(item) in (dict, list)]
                self._entries.append(_Entry.of(name, (partial(_copies, records), partial(_refill_each, records))))
        elif issubclass(kind, READ_ONLY):
            yield from ((name, part) for part in parts_of(thing, MAX_ITEMS))

    def _values(self, name: str, thing: Any, always: bool = False) -> None:
        """Remember the values of a tensor or an array, where it is `always` copied, or else as the memory allows."""
        if self._left is None:
            return
        for values in values_in_memory(thing):
            fits = values.nbytes <= self._left
            self._left -= values.nbytes if fits and not always else 0
            self._append(_entry_of_values(name, values, always or fits), thing)

    def _table(self, name: str, thing: Any) -> None:
        """Remember the values of a table of pandas, where the memory allows."""
        pandas = sys.modules.get("pandas")
        if pandas is None or self._left is None or not isinstance(thing, (pandas.DataFrame, pandas.Series)):
            return
        size = int(np.sum(thing.memory_usage()))
        if size <= self._left:
            self._left -= size
            state = thing.copy, partial(type(thing).__init__, thing)
            self._entries.append(_Entry.of(name, state, lambda now, before: now.equals(before)))

    def _counts(self, kind: type) -> bool:
        """Return True if the attributes of a class are the user's own."""
        if self._data:
            return _is_users_code(kind.__module__)
        return _package(kind) not in (*FOREIGN, OURS)


def _ask(question: Callable[[], bool | None]) -> bool | None:
    """Return the answer; None where there is none, as of a sparse tensor and of a proxy of what is gone."""
    with suppress(Exception):
        return question()
    return None


# what counts


def _has_state(thing: Any) -> bool:
    """Return True for a module, a dataset, and what has items as a dataset does: these are more than a reader."""
    return isinstance(thing, OWN_STATE) or hasattr(type(thing), "__getitem__")


def _is_plain(value: Any) -> bool:
    """Return True for an object of the user's own with attributes, and for a module that is nobody's submodule."""
    if isinstance(value, OWN_STATE):
        return True
    return not isinstance(value, type) and _package(type(value)) not in FOREIGN


def _package(kind: type) -> str:
    return str(kind.__module__).split(".")[0]  # of some compiled by Cython it is a descriptor


@lru_cache(maxsize=1000)
def _is_users_code(module: str | None) -> bool:
    """Return True for the name of a module that no package brought along."""
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    if str(module).split(".")[0] in (*FOREIGN, OURS):
        return False
    return module == "__main__" or (file is not None and not set(Path(file).parts) & set(LIBRARIES))


def _named_alone(namespace: dict[str, Any], named: set[str]) -> _Names:
    return replace(_Names.of(namespace), read=lambda: {x: namespace[x] for x in named if x in namespace})


def _names_in(code: CodeType) -> set[str]:
    """Return the global names that a function uses, and the functions inside it."""
    inside = (_names_in(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inside)


# names


def _of_slots(thing: Any) -> _Names:
    return _Names(partial(slots_of, thing), partial(object.__setattr__, thing), partial(object.__delattr__, thing))


def _of_class(kind: type) -> _Names:
    def read() -> dict[str, Any]:
        return {name: value for name, value in vars(kind).items() if not _is_fixed(name)}

    return _Names(read, partial(setattr, kind), partial(delattr, kind))


def _place(name: str, key: str) -> str:
    return f"{name}.{key}".strip(".").removesuffix(".cell_contents")


def _is_fixed(name: str) -> bool:
    return name.startswith("__") and name not in ("__getitem__", "__getitems__", "__iter__", "__call__", "__len__")


# containers


def _items_of(kind: Any, container: Any) -> list[list[Any]]:
    """Return a container's items, or its keys and its values, by its kind's own methods: a Counter's `update` adds."""
    if issubclass(kind, dict):
        return [list(kind.keys(container)), list(kind.values(container))]
    return [list(kind.__iter__(container))]


def _are_same(now: list[list[Any]], before: list[list[Any]]) -> bool:
    pairs = zip(now, before, strict=True)
    return len(now[0]) == len(before[0]) and all(all(map(operator.is_, *pair)) for pair in pairs)


def _refill(kind: Any, container: Any, items: list[list[Any]]) -> None:
    """Let a container hold what it held, in the same order."""
    kind.clear(container)
    if issubclass(kind, dict):
        for name, value in zip(*items, strict=True):
            kind.__setitem__(container, name, value)
    else:
        (kind.update if kind is set else kind.extend)(container, *items)


def _copies(records: list[Any]) -> list[Any]:
    return [record.copy() for record in records]


def _refill_each(records: list[Any], items: list[Any]) -> None:
    for record, before in zip(records, items, strict=True):
        record.clear()
        (record.update if type(record) is dict else record.extend)(before)


# tensors and arrays


def _entry_of_tensor(name: str, tensor: Tensor) -> tuple[_Entry, list[Any]]:
    """Return an entry for all of a tensor but its values, and what it holds."""
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

    return _Entry(name, moved, put_back), list(bound.values())


def _hooks_of(tensor: Tensor) -> dict[str, dict[Any, Any]]:
    return {name: dict(getattr(tensor, name) or {}) for name in HOOKS}


def _entry_of_values(name: str, values: Any, copied: bool) -> _Entry:
    """Return an entry for what bytes or an array hold, by a copy on the CPU or, without one, by a fingerprint."""
    if not copied:
        return _Entry.of(name, (partial(fingerprint, values), lambda before: None))
    if isinstance(values, np.ndarray):
        return _Entry.of(name, (values.copy, partial(_fill_array, values)), _are_equal_arrays)
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

    return _Entry(name, moved, put_back)


def _are_equal_arrays(now: Any, before: Any) -> bool:
    return now.shape == before.shape and now.tobytes() == before.tobytes()


def _fill_array(values: Any, before: Any) -> None:
    if values.shape != before.shape:
        values.resize(before.shape, refcheck=False)
    values[...] = before


# data


def _stand_in(name: str, value: Any) -> Any:
    """Return what takes the place of something that reading would use up or fill for good; None for anything else."""
    if isinstance(value, (staticmethod, classmethod)):
        inside = _stand_in(name, value.__func__)
        return None if inside is None else type(value)(inside)
    if isinstance(value, property):
        inside = _stand_in(name, value.fget)
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
    """Return a copy of an iterator; of a count by its repr, since Python 3.14 cannot copy it."""
    if not isinstance(iterator, itertools.count):
        return copy.copy(iterator)
    shown = repr(iterator).removeprefix("count")
    try:
        return itertools.count(*ast.literal_eval(shown.replace(")", ",)")))
    except ValueError:  # of other numbers than Python's own
        return _UsedUp(name, "count")


def _hides_position(file: TextIOWrapper) -> bool:
    """Return True of a text file that is gone over line by line, and False of one that is only written to."""
    return not (file.closed or file.writable()) and file.seekable() and _state_of_file(file) is None


def _opened_again(file: TextIOWrapper, name: str) -> Any:
    """Return another handle of a text file, at its beginning."""
    if not isinstance(file.buffer, BufferedReader) or not Path(str(file.name)).is_file():
        return _UsedUp(name, "text file")
    return _Reopened(open(str(file.name), "rb"), encoding=file.encoding, errors=file.errors)


class _Reopened(TextIOWrapper):
    """Text of a file that closes it once nobody has it."""

    def __del__(self) -> None:
        self.close()


def _inside(value: Any) -> Any:
    """Return the function that a method of a class, a property or a cached function calls; else the value itself."""
    for kind, attribute in ((CACHED, "__wrapped__"), ((staticmethod, classmethod), "__func__"), (property, "fget")):
        if isinstance(value, kind):
            return _inside(getattr(value, attribute))
    return value


class _UsedUp:
    """Stands for an iterator that cannot start again, so that nothing is taken from it."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind

    def __iter__(self) -> _UsedUp:
        return self

    def __next__(self) -> Any:
        raise ValueError(
            f"Expected data that can be read again, but `{self.name}` is a {self.kind}, which cannot start again: what "
            "is read of it would be lost to the training. Make it anew in `__iter__`, or give `real_images=` a Dataset "
            "or tensor of its own."
        )

    send = throw = __getitem__ = lambda self, *_: next(self)


def _outside_state(thing: Any) -> State | None:
    """Return what reads and sets the state that something has outside of Python's attributes; None if it has none."""
    if isinstance(thing, (IOBase, mmap)):
        return _state_of_file(thing)
    if isinstance(thing, (array, ListProxy)):
        return lambda: thing[:], partial(thing.__setitem__, slice(None))
    if isinstance(thing, DictProxy):
        return thing.copy, partial(_refill_proxy, thing)
    shared = thing.get_obj() if hasattr(thing, "get_obj") else thing  # of multiprocessing
    if isinstance(shared, C_TYPES):
        size = ctypes.sizeof(shared)
        return partial(bytes, shared), lambda saved: ctypes.memmove(ctypes.addressof(shared), saved, size)
    return None


def _is_shared(thing: Any) -> bool:
    """Return True of memory that other processes may write: of multiprocessing or torch, or lent to an array."""
    if isinstance(thing, Tensor):
        return thing.device.type == "cpu" and thing.is_shared()
    if isinstance(thing, np.ndarray):
        return _is_shared(thing.base) if isinstance(thing.base, (np.ndarray, Tensor)) else thing.base is not None
    return hasattr(thing, "get_obj") or isinstance(thing, (DictProxy, ListProxy, *C_TYPES))


def _state_of_file(file: Any) -> State | None:
    """Return what reads and sets the position of a file or of mapped memory; None where it has none to tell."""
    in_memory = isinstance(file, (mmap, BytesIO, StringIO))
    if file.closed or not (in_memory or (file.seekable() and not file.writable())):  # what was written stays
        return None
    with suppress(OSError):  # of a text file that is gone over line by line
        file.tell()
        return file.tell, file.seek
    return None


def _refill_proxy(proxy: Any, items: Mapping[Any, Any]) -> None:
    proxy.clear()
    proxy.update(items)


def _are_equal_states(now: Any, before: Any) -> bool:
    return bool(_packed(now) == _packed(before))


def _packed(state: Any) -> Any:
    """Return a state in a form that can be compared."""
    if isinstance(state, Tensor):
        return state.cpu().numpy().tobytes()
    return tuple(map(_packed, state)) if isinstance(state, (list, tuple)) else pickle.dumps(state)
