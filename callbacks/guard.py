# SPDX-License-Identifier: Apache-2.0
"""Leaving a training run as it was: random states, modes, buffers, gradients."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from genmonitor.callbacks.generators import generators_in, generators_kept


@contextmanager
def left_alone(module: nn.Module) -> Iterator[None]:
    """Put back whatever the block changes of a training run, also when it raises.

    Inside, the module is in eval mode, its parameters have no `grad`, and gradients are off but can be turned on, also
    in Lightning's validation loop. Restored are the random states of torch (CPU and every CUDA device), numpy, python
    and the generators that the module holds; each submodule's train or eval mode; every buffer, such as BatchNorm's
    statistics; each parameter's `grad` and `requires_grad`. Parameters themselves are not copied.

    Example:
        >>> norm = torch.nn.BatchNorm1d(2)
        >>> with left_alone(norm):
        ...     _ = norm.train()(torch.randn(8, 2)), torch.manual_seed(7)
        >>> norm.running_mean
        tensor([0., 0.])
    """
    random_states, generators = _random_states(), generators_in(module)
    modes = [(part, part.training) for part in module.modules()]
    buffers = [
        (part, name, buffer, buffer.clone())
        for part in module.modules()
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]
    parameters = [(parameter, parameter.grad, parameter.requires_grad) for parameter in module.parameters()]
    try:
        with torch.inference_mode(False), torch.no_grad(), generators_kept(generators):
            for part, _ in modes:
                part.training = False
            for parameter, _, _ in parameters:
                parameter.grad = None  # taken away, not copied: what is not there cannot be added to
            yield
    finally:
        with torch.no_grad():
            for part, name, buffer, value in buffers:
                part._buffers[name] = buffer
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
        for part, training in modes:
            part.training = training
        for parameter, grad, requires_grad in parameters:
            parameter.grad = grad
            parameter.requires_grad_(requires_grad)
        _set_random_states(random_states)


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Put back only the random states of torch, numpy and python."""
    states = _random_states()
    try:
        yield
    finally:
        _set_random_states(states)


def _random_states() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    numpy = np.random.get_state()  # noqa: NPY002
    return {"torch": torch.get_rng_state(), "cuda": cuda, "numpy": numpy, "python": random.getstate()}


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    random.setstate(states["python"])
