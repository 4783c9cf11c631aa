# SPDX-License-Identifier: Apache-2.0
"""Keeping an evaluation from changing the training run: random states, modes, buffers, gradients, attributes."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain
from types import BuiltinMethodType, FunctionType, MappingProxyType, MethodType
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
READ_ONLY = (tuple, frozenset, MappingProxyType, partial, MethodType, BuiltinMethodType)
"""What holds things, and always the same ones."""
MAX_ITEMS = 1000
"""How many items a container may have that is looked through for others."""
MAX_BYTES = 2**28
"""Memory for copies of tensors that are no buffers, and of arrays: 256 MiB."""
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""Of a parameter; None before the first."""
OURS = __name__.split(".")[0]
STANDARD = ("builtins", "functools", "typing", "logging", "threading")
FOREIGN = ("torch", "lightning", "pytorch_lightning", "wandb", "mlflow", *STANDARD)
"""Packages whose objects hang on modules without being the user's own state, such as the Trainer or a run."""


@contextmanager
def preserve_training_state(module: nn.Module) -> Iterator[None]:
    """Restore training state on exit, also after an exception.

    Inside, the module is in eval mode, its parameters have no `grad`, and gradients are off but can be turned on, also
    in Lightning's validation loop. Restored are the random states of torch (CPU, every CUDA device, MPS), numpy, python
    and the generators that the module holds; torch's default dtype and number of threads; each submodule's train or
    eval mode; every buffer, such as BatchNorm's statistics; each parameter's `grad`, `requires_grad`, hooks and memory,
    if `data` or `half` gave it another; and every attribute of each submodule and of the plain objects that it holds,
    such as a counter, a list that sampling appends to, a hook, a noise scheduler, or a module in a list, those of its
    class among them: what an attribute is bound to, the items of lists, dictionaries, sets, deques and their
    subclasses, and the values of other tensors and arrays, as many as 256 MiB hold. Not copied, and so not restored
    where sampling writes into them, are the values of the module's parameters, what is held more than six deep or among
    more than 1000 items, and what only a function, an iterator, a weak reference or an object of torch's or of C's
    knows.

    Example:
        >>> norm = torch.nn.BatchNorm1d(2)
        >>> with preserve_training_state(norm):
        ...     _ = norm.train()(torch.randn(8, 2)), torch.manual_seed(7)
        >>> norm.running_mean
        tensor([0., 0.])
    """
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        stack.enter_context(preserve_rng())
        stack.enter_context(preserve_generators(find_generators(module)))
        stack.enter_context(_preserve_tensors(module))
        stack.enter_context(_preserve_attributes(module))  # left first: buffers are where they were before they are set
        for part in module.modules():
            part.training = False
        for parameter in module.parameters():
            parameter.grad = None  # taken away, not copied: what is not there cannot be added to
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        yield


@contextmanager
def _preserve_tensors(module: nn.Module) -> Iterator[None]:
    """Restore the values of buffers, and what belongs to parameters."""
    parameters = list(module.parameters())
    with DisableTorchFunctionSubclass():
        # by part: to compare one that is spread over processes would take all of them
        restore = [_remember_tensor(local_part(x)) for x in module.buffers() if _has_values(x)]
        restore += [partial(setattr, x, "data", x.detach()) for x in parameters if _is_array(x)]
        # by assignment, which an uninitialized parameter allows
        for name in ("grad", "requires_grad"):
            restore += [partial(setattr, x, name, getattr(x, name)) for x in parameters]
        hooks = [(x, name, dict(getattr(x, name) or {})) for x in parameters for name in HOOKS]
    try:
        yield
    finally:
        with DisableTorchFunctionSubclass():
            for put_back in restore:
                put_back()
            for parameter, name, held in hooks:
                if (now := getattr(parameter, name)) is not None:
                    _refill(OrderedDict, now, list(held.items()))


def local_part(tensor: Tensor) -> Tensor:
    """Return what this process holds of a tensor: all, where it is not spread over several; the same memory."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


@contextmanager
def _preserve_attributes(module: nn.Module) -> Iterator[None]:
    """Restore the attributes of every submodule and of the plain objects among them, buffers that are None too."""
    parts = list(module.modules())
    # of a lazy module that sampling gives its sizes, only the mode: the sizes must stay with the parameters
    lazy = [part for part in parts if _is_uninitialized(part)]
    modes = [(part, part.training) for part in lazy]
    owners = [part for part in parts if not _is_uninitialized(part)]
    known = chain(lazy, module.buffers(), module.parameters())
    put_back = _remember_all(owners, MAX_BYTES, known, ours=False)  # what a monitor that hangs there finds stays
    try:
        yield
    finally:
        put_back()
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
        with DisableTorchFunctionSubclass(), suppress(Exception):  # a proxy of what is not there yet may raise anything
            if _is_array(thing) and thing.nbytes <= tensor_bytes:
                tensor_bytes -= thing.nbytes
                restore.append(_remember_tensor(thing) if isinstance(thing, Tensor) else _remember_array(thing))
            inner += _remember_object(thing, restore, depth == MAX_DEPTH)
            inner += _remember_items(thing, restore)
        queue.extend((part, depth - 1) for part in inner if depth)
        near = len(restore) if depth >= MAX_DEPTH - 1 else near

    def put_back() -> None:
        with DisableTorchFunctionSubclass():
            for one in restore:
                one()

    return put_back


def _remember_object(thing: Any, restore: list[Callable[[], None]], owner: bool) -> list[Any]:
    """Add functions that put back the attributes of an object, or of a class; return what it holds."""
    if isinstance(thing, type) and _is_users(thing):
        shared = {name: value for name, value in vars(thing).items() if not name.startswith("__")}
        restore.append(partial(_rebind_class, thing, shared))
        return list(shared.values())
    if isinstance(thing, nn.Parameter) and not is_lazy(thing):
        restore.append(partial(setattr, thing, "requires_grad", thing.requires_grad))
    if not (owner or _is_plain(thing)):
        return []
    namespace, slots = getattr(thing, "__dict__", {}), slots_of(thing)
    bound = dict(namespace)
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
    if isinstance(value, (Tensor, type, FunctionType, MethodType)):
        return False
    has_attributes = hasattr(value, "__dict__") or hasattr(type(value), "__slots__")
    return has_attributes and _package(type(value)) not in FOREIGN


def _is_users(kind: type) -> bool:
    return _package(kind) not in (*FOREIGN, OURS)


def _package(kind: type) -> str:
    return kind.__module__.split(".")[0]


def _is_array(value: Any) -> bool:
    """Say whether something is an array, or a tensor in plain memory, that can be copied and written to."""
    kind = type(value)
    if issubclass(kind, np.ndarray):
        return bool(value.flags.writeable)
    if not issubclass(kind, Tensor) or kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return False
    in_memory = _has_values(value) and value.layout is torch.strided and not value.is_inference()
    return in_memory and 0 not in value.stride()


def _has_values(tensor: Tensor) -> bool:
    return not (is_lazy(tensor) or tensor.is_meta or tensor.is_nested)


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
    for name in slots_of(owner).keys() - bound.keys():
        object.__delattr__(owner, name)
    for name, value in bound.items():
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


def _remember_array(array: np.ndarray[Any, Any]) -> Callable[[], None]:
    """Return a function that puts back what an array holds."""
    content = array.copy()

    def put_back() -> None:
        if array.shape != content.shape:
            array.resize(content.shape, refcheck=False)
        array[...] = content

    return put_back


def _remember_tensor(tensor: Tensor) -> Callable[[], None]:
    """Return a function that puts back what a tensor holds, where it was; both may have been made others in place."""
    memory, content = tensor.detach(), tensor.detach().clone()

    @torch.no_grad()
    def put_back() -> None:
        if memory.layout is torch.strided:
            tensor.data = memory
        if memory.layout is not torch.strided or not torch.equal(memory, content):
            memory.copy_(content)

    return put_back
