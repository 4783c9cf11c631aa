# SPDX-License-Identifier: Apache-2.0
"""Keeping an evaluation from changing the training run: random states, modes, buffers, gradients, attributes."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from genmonitor.training_state.rng import find_generators, preserve_generators, preserve_rng

CONTAINERS = (list, dict, set, deque)
FOREIGN = ("torch", "lightning", "pytorch_lightning", "builtins", "functools", "types", "typing")
"""Packages whose objects hang on modules without being the user's own state, such as the Trainer."""


@contextmanager
def preserve_training_state(module: nn.Module) -> Iterator[None]:
    """Restore training state on exit, also after an exception.

    Inside, the module is in eval mode, its parameters have no `grad`, and gradients are off but can be turned on, also
    in Lightning's validation loop. Restored are the random states of torch (CPU, every CUDA device, MPS), numpy, python
    and the generators that the module holds; each submodule's train or eval mode; every buffer, such as BatchNorm's
    statistics; each parameter's `grad` and `requires_grad`; and every attribute of each submodule and of the plain
    objects that it holds, such as a counter, a list that sampling appends to, or a noise scheduler: what an attribute
    is bound to, and the items of lists, dictionaries, sets and deques. Not copied, and so not restored where sampling
    writes into them, are parameters, tensors that are no buffers, and what lies deeper.

    Example:
        >>> norm = torch.nn.BatchNorm1d(2)
        >>> with preserve_training_state(norm):
        ...     _ = norm.train()(torch.randn(8, 2)), torch.manual_seed(7)
        >>> norm.running_mean
        tensor([0., 0.])
    """
    with ExitStack() as stack:
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
    # by part: to compare one that is spread over processes would take all of them
    local = [local_part(buffer) for buffer in module.buffers() if not is_lazy(buffer)]
    buffers = [(buffer, buffer.clone()) for buffer in local]
    parameters = [(parameter, parameter.grad, parameter.requires_grad) for parameter in module.parameters()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                if buffer.layout is not torch.strided or not torch.equal(buffer, value):
                    buffer.copy_(value)
        for parameter, grad, requires_grad in parameters:
            parameter.grad = grad
            parameter.requires_grad_(requires_grad)


def local_part(tensor: Tensor) -> Tensor:
    """Return what this process holds of a tensor: all, where it is not spread over several; the same memory."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


@contextmanager
def _preserve_attributes(module: nn.Module) -> Iterator[None]:
    """Restore the attributes of every submodule and of the plain objects among them, buffers that are None too."""
    parts = list(module.modules())
    # of a lazy module that sampling gives its sizes, only the mode: the sizes must stay with the parameters
    modes = [(part, part.training) for part in parts if _is_uninitialized(part)]
    put_back = _remember_all([part.__dict__ for part in parts if not _is_uninitialized(part)])
    try:
        yield
    finally:
        put_back()
        for part, training in modes:
            part.training = training


def remember_attributes(owner: Any) -> Callable[[], None]:
    """Return a function that puts back the attributes of an object and of the plain objects that it holds.

    What each is bound to comes back, and the items of lists, dictionaries, sets and deques; what lies deeper does not.

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
    return _remember_all([vars(owner)])


def _remember_all(namespaces: list[dict[str, Any]]) -> Callable[[], None]:
    held = [vars(value) for namespace in namespaces for value in namespace.values() if _is_plain(value)]
    restore = [_remember(namespace) for namespace in {id(one): one for one in (*namespaces, *held)}.values()]

    def put_back() -> None:
        for one in restore:
            one()

    return put_back


def _is_uninitialized(part: nn.Module) -> bool:
    """Say whether a lazy module is still to take its sizes from its first batch."""
    return isinstance(part, LazyModuleMixin) and part.has_uninitialized_params()  # type: ignore[misc]


def _is_plain(value: Any) -> bool:
    """Say whether something is an object of the user's own, with attributes."""
    if isinstance(value, (nn.Module, Tensor, type, FunctionType, MethodType)) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.split(".")[0] not in FOREIGN


def _remember(namespace: dict[str, Any]) -> Callable[[], None]:
    """Return a function that binds attributes to what they are bound to now, and refills containers."""
    bound = dict(namespace)
    contents = [(value, copy.copy(value)) for value in bound.values() if type(value) in CONTAINERS]

    def put_back() -> None:
        for name in namespace.keys() - bound.keys():
            del namespace[name]
        for name, value in bound.items():
            if name not in namespace or namespace[name] is not value:
                namespace[name] = value
        for container, content in contents:
            if not _same_items(container, content):
                container.clear()
                (container.extend if isinstance(container, (list, deque)) else container.update)(content)

    return put_back


def _same_items(a: Any, b: Any) -> bool:
    if len(a) != len(b):
        return False
    if isinstance(a, dict):
        return all(name in a and a[name] is value for name, value in b.items())
    if isinstance(a, set):
        return bool(a == b)
    return all(x is y for x, y in zip(a, b, strict=True))
