# SPDX-License-Identifier: Apache-2.0
"""Keeping an evaluation from changing the training run: random states, modes, buffers, gradients, attributes."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import IOBase
from itertools import chain
from threading import Thread
from types import BuiltinMethodType, MappingProxyType, MethodType
from typing import Any
from weakref import ProxyTypes

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import DisableTorchFunctionSubclass
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.quasirandom import SobolEngine

from genmonitor.training_state.rng import (
    MAX_DEPTH,
    MAX_OBJECTS,
    find_generators,
    parts_of,
    preserve_generators,
    preserve_rng,
    slots_of,
)

CONTAINERS = (OrderedDict, dict, list, set, deque, bytearray)
"""What is refilled, and subclasses of them; an OrderedDict keeps an order that the methods of `dict` do not see."""
READ_ONLY = (tuple, frozenset, MappingProxyType, partial, MethodType, BuiltinMethodType, np.ndarray)
"""What holds things, and always the same ones."""
MAX_ITEMS = 1000
"""How many items a container may have that is looked through for others."""
MAX_BYTES = 2**28
"""Memory for copies of tensors that are no buffers, and of arrays: 256 MiB."""
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""Of a tensor; None before the first."""
STORED = {
    torch.strided: (Tensor.detach,),
    torch.sparse_coo: (Tensor._indices, Tensor._values),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), (Tensor.crow_indices, Tensor.col_indices, Tensor.values)),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), (Tensor.ccol_indices, Tensor.row_indices, Tensor.values)),
}
"""What returns the dense tensors that a tensor consists of, by its layout."""
BACKENDS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (torch.backends, ("fp32_precision",)),
    (torch.backends.cuda.matmul, ("fp32_precision", "allow_tf32")),
    (torch.backends.cudnn, ("enabled", "benchmark", "deterministic", "allow_tf32")),
)
SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, torch.set_default_device),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    *((partial(getattr, of, name), partial(setattr, of, name)) for of, names in BACKENDS for name in names),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
)
"""How each setting of torch's own is read and set."""
OURS = __name__.split(".")[0]
STANDARD = ("builtins", "functools", "typing", "logging", "threading", "queue", "multiprocessing", "concurrent")
FOREIGN = ("torch", "lightning", "pytorch_lightning", "wandb", "mlflow", *STANDARD)
"""Packages whose objects hang on modules without being the user's own state, such as the Trainer, a run or what other
threads fill meanwhile."""


@contextmanager
def preserve_training_state(module: nn.Module) -> Iterator[None]:
    """Restore training state on exit, also after an exception.

    Inside, the module is in eval mode, its parameters have no `grad`, and gradients are off but can be turned on, also
    in Lightning's validation loop. Restored are

    - the random states of torch (CPU, every CUDA device, MPS), numpy, python and the generators that the module holds;
    - torch's default dtype and device, number of threads, deterministic, anomaly and cuDNN modes and float32 precision;
    - every attribute of each submodule and of the plain objects and containers that it holds: its mode, a counter, a
      list that sampling appends to, a hook, a noise scheduler, an attribute of its class;
    - tensors: memory, if `data` or `half` gave them another, `grad`, `requires_grad` and hooks; the values of buffers,
      such as BatchNorm's statistics, and of other tensors and arrays, as many as 256 MiB hold.

    Not restored, where sampling changes them, are the values of the module's parameters, how far an iterator, a file
    or a thread has come and the object that holds it, what is held more than six deep or among more than 1000 items,
    and what only a closure, a global variable, a queue, a weak reference or an object of torch's or of C's knows.

    Example:
        >>> norm = torch.nn.BatchNorm1d(2)
        >>> with preserve_training_state(norm):
        ...     _ = norm.train()(torch.randn(8, 2)), torch.manual_seed(7)
        >>> norm.running_mean
        tensor([0., 0.])
    """
    with ExitStack() as stack:
        stack.enter_context(_preserve_settings())
        stack.enter_context(preserve_rng())
        stack.enter_context(preserve_generators(find_generators(module)))
        stack.enter_context(_preserve_objects(module))
        for part in module.modules():
            part.training = False
        for parameter in module.parameters():
            parameter.grad = None  # taken away, not copied: what is not there cannot be added to
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        yield


@contextmanager
def _preserve_settings() -> Iterator[None]:
    """Restore the settings of torch, as far as this torch has them."""
    before = [(get, put, _read(get)) for get, put in SETTINGS]
    try:
        yield
    finally:
        for get, put, value in before:
            if value is not None and _read(get) != value:
                with suppress(Exception):
                    put(value)


def _read(get: Callable[[], Any]) -> Any:
    """Return a setting; None where there is none, or where its old and new names were mixed, which torch refuses."""
    with suppress(Exception):
        return get()
    return None


def local_part(tensor: Tensor) -> Tensor:
    """Return what this process holds of a tensor: all, where it is not spread over several; the same memory."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


@contextmanager
def _preserve_objects(module: nn.Module) -> Iterator[None]:
    """Restore every submodule, buffer and parameter, and what they hold."""
    parts = list(module.modules())
    # of a lazy module that sampling gives its sizes, only the mode: the sizes must stay with the parameters
    lazy = [part for part in parts if _is_uninitialized(part)]
    modes = [(part, part.training) for part in lazy]
    owners = [*(part for part in parts if not _is_uninitialized(part)), *module.buffers()]
    restore: list[Callable[[], None]] = []
    with DisableTorchFunctionSubclass():
        for parameter in module.parameters():
            _remember_tensor(parameter, restore)
    put_back = _remember_all(owners, MAX_BYTES, [*lazy, *module.parameters()], ours=False)  # a monitor keeps its finds
    try:
        yield
    finally:
        put_back()
        _do(restore)
        for part, training in modes:
            part.training = training


def remember_attributes(owner: Any) -> Callable[[], None]:
    """Return a function that puts back the attributes of an object and of the plain objects that it holds.

    What each is bound to comes back, and the items of containers; the values of tensors do not.

    Example:
        >>> from types import SimpleNamespace
        >>> owner = SimpleNamespace(count=1, seen=["a"])
        >>> put_back = remember_attributes(owner)
        >>> owner.count = 2
        >>> owner.seen.append("b")
        >>> put_back()
        >>> owner
        namespace(count=1, seen=['a'])
    """
    return _remember_all([owner], 0)


def _remember_all(
    owners: Sequence[Any], tensor_bytes: int, known: Iterable[Any] = (), ours: bool = True
) -> Callable[[], None]:
    """Return a function that puts back objects and what they hold, the nearest things first.

    Args:
        owners: whose attributes count, whatever their type; of what they hold, those of plain objects.
        tensor_bytes: memory for copies of tensors and arrays.
        known: what somebody else puts back.
        ours: whether objects of this package, and of classes that derive from its own, count.
    """
    seen = {id(thing) for thing in known}
    restore: list[Callable[[], None]] = []
    near = 0
    queue = deque((owner, MAX_DEPTH) for owner in owners)
    while queue and len(restore) - near < MAX_OBJECTS:
        thing, depth = queue.popleft()
        if id(thing) in seen or type(thing) in ProxyTypes:  # what a weak reference is to may be gone
            continue
        if not ours and depth < MAX_DEPTH and OURS in map(_package, type(thing).__mro__):
            continue
        seen.add(id(thing))
        inner: list[Any] = []
        owner = depth == MAX_DEPTH
        with DisableTorchFunctionSubclass(), suppress(Exception):  # a proxy of what is not there yet may raise anything
            inner += _remember_object(thing, restore, owner)
            inner += _remember_items(thing, restore)
            if issubclass(type(thing), Tensor):
                inner += _remember_tensor(thing, restore)
            values = _values_in_memory(thing)
            size = sum(x.nbytes for x in values)
            if owner or size <= tensor_bytes:
                tensor_bytes -= 0 if owner else size
                restore += map(_remember_values, values)
        queue.extend((part, depth - 1) for part in inner if depth)
        near = len(restore) if depth >= MAX_DEPTH - 1 else near

    return partial(_do, restore)


def _do(restore: Iterable[Callable[[], None]]) -> None:
    """Put back one after the other: what cannot be keeps nothing else from it."""
    with DisableTorchFunctionSubclass():
        for put_back in restore:
            with suppress(Exception):
                put_back()


def _remember_object(thing: Any, restore: list[Callable[[], None]], owner: bool) -> list[Any]:
    """Add functions that put back the attributes of an object, or of a class; return what it holds."""
    if isinstance(thing, type) and _is_users(thing):
        shared = {name: value for name, value in vars(thing).items() if not name.startswith("__")}
        restore.append(partial(_rebind_class, thing, shared))
        return list(shared.values())
    if not (owner or _is_plain(thing)):
        return []
    namespace, slots = getattr(thing, "__dict__", {}), slots_of(thing)
    bound = dict(namespace)
    moves = isinstance(thing, IOBase) or any(isinstance(x, (Iterator, Thread)) for x in bound.values())
    if moves and not (owner or isinstance(thing, nn.Module)):
        return []  # all of it or nothing: a reader whose file is elsewhere by now would read wrongly
    restore.append(partial(_rebind, namespace, bound))
    restore.append(partial(_rebind_slots, thing, slots))
    return [*bound.values(), *slots.values(), *filter(_is_users, type(thing).__mro__)]


def _remember_items(thing: Any, restore: list[Callable[[], None]]) -> list[Any]:
    """Add a function that refills a container; return what it holds."""
    kind = type(thing)  # of a proxy, `isinstance` asks what stands behind it
    if of := next((of for of in CONTAINERS if issubclass(kind, of)), None):
        items = _items(of, thing)
        restore.append(partial(_refill, of, thing, items))
        return list(chain(*items)) if len(items) <= MAX_ITEMS else []
    return parts_of(thing, MAX_ITEMS) if issubclass(kind, READ_ONLY) else []


def _is_uninitialized(part: nn.Module) -> bool:
    """Say whether a lazy module is still to take its sizes from its first batch."""
    return isinstance(part, LazyModuleMixin) and part.has_uninitialized_params()  # type: ignore[misc]


def _is_plain(value: Any) -> bool:
    """Say whether something is an object of the user's own with attributes, or a module that is nobody's submodule."""
    if isinstance(value, (nn.Module, SobolEngine)):
        return True
    return not isinstance(value, type) and _package(type(value)) not in FOREIGN


def _is_users(kind: type) -> bool:
    return _package(kind) not in (*FOREIGN, OURS)


def _package(kind: type) -> str:
    return str(kind.__module__).split(".")[0]  # of some compiled by Cython it is a descriptor


def _rebind(namespace: dict[str, Any], bound: dict[str, Any]) -> None:
    """Bind attributes to what they were bound to."""
    for name in namespace.keys() - bound.keys():
        del namespace[name]
    for name, value in bound.items():
        if name not in namespace or namespace[name] is not value:
            namespace[name] = value


def _rebind_class(kind: type, bound: dict[str, Any]) -> None:
    """Bind the attributes of a class to what they were bound to."""
    for name in [name for name in vars(kind) if name not in bound and not name.startswith("__")]:
        delattr(kind, name)
    for name, value in bound.items():
        if name not in vars(kind) or vars(kind)[name] is not value:
            setattr(kind, name, value)


def _rebind_slots(owner: Any, bound: dict[str, Any]) -> None:
    """Bind the attributes that an object keeps in `__slots__` to what they were bound to."""
    now = slots_of(owner)
    for name in now.keys() - bound.keys():
        object.__delattr__(owner, name)
    for name, value in bound.items():
        if now.get(name, bound) is not value:
            object.__setattr__(owner, name, value)  # of a frozen one too


def _items(kind: Any, container: Any) -> list[tuple[Any, ...]]:
    """Return a container's items by its kind's own methods: a Counter's `update` adds."""
    return list(kind.items(container) if issubclass(kind, dict) else zip(kind.__iter__(container)))


def _refill(kind: Any, container: Any, items: list[tuple[Any, ...]]) -> None:
    """Let a container hold what it held, in the same order."""
    now = _items(kind, container)
    if len(now) == len(items) and all(x is y for x, y in zip(chain(*now), chain(*items), strict=True)):
        return
    kind.clear(container)
    if issubclass(kind, dict):
        for name, value in items:
            kind.__setitem__(container, name, value)
    else:
        (kind.update if kind is set else kind.extend)(container, chain(*items))


def _remember_tensor(tensor: Tensor, restore: list[Callable[[], None]]) -> list[Any]:
    """Add a function that puts back all of a tensor but its values; return what it holds."""
    leaf, names = tensor.is_leaf, ("grad", "requires_grad")
    own_memory = not is_lazy(tensor) and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
    memory = tensor.detach() if own_memory else None
    bound = {name: getattr(tensor, name) for name in names} if leaf else {}  # any other has none, and warns
    hooks = {name: dict(getattr(tensor, name) or {}) for name in HOOKS}

    def put_back() -> None:
        if memory is not None:
            tensor.data = memory
        if leaf and not tensor.is_leaf:
            tensor.detach_()
        for name, value in bound.items():
            setattr(tensor, name, value)
        for name, held in hooks.items():
            if (now := getattr(tensor, name)) is not None:
                _refill(OrderedDict, now, list(held.items()))

    restore.append(put_back)
    return list(bound.values())


def _values_in_memory(thing: Any) -> list[Any]:
    """Return the values of a tensor or an array as they lie in memory: bytes, or the array itself."""
    kind = type(thing)
    if issubclass(kind, np.ndarray):
        return [thing] if thing.flags.writeable else []
    if not issubclass(kind, Tensor) or is_lazy(thing) or thing.is_meta:
        return []
    if hasattr(thing, "__tensor_flatten__"):  # around other tensors
        return [x for name in thing.__tensor_flatten__()[0] for x in _values_in_memory(getattr(thing, name))]
    stored = [get(thing) for get in STORED.get(thing.layout, ())]
    return [_bytes_of(x) for x in stored if x.numel()]


def _bytes_of(tensor: Tensor) -> Tensor:
    """Return the memory from a tensor's first number to its last, once where it repeats them."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    place = tensor.storage_offset() * tensor.element_size(), ((last + 1) * tensor.element_size(),), (1,)
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage(), *place)


def _remember_values(values: Any) -> Callable[[], None]:
    """Return a function that puts back what bytes or an array hold."""
    if isinstance(values, np.ndarray):
        content = values.copy()

        def put_back() -> None:
            if values.shape != content.shape:
                values.resize(content.shape, refcheck=False)
            values[...] = content

        return put_back
    storage, end, saved = values.untyped_storage(), values.storage_offset() + len(values), values.clone()

    def put_back_bytes() -> None:
        if storage.nbytes() < end:
            storage.resize_(end)
        if not torch.equal(values, saved):  # what is read-only cannot have changed
            values.copy_(saved)

    return put_back_bytes
