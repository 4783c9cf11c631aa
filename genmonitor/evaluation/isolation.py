# SPDX-License-Identifier: Apache-2.0
"""Keeping an evaluation from changing the training run: random states, modes, buffers, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from genmonitor.evaluation.rng import find_generators, preserve_generators, preserve_rng


@contextmanager
def preserve_training_state(module: nn.Module) -> Iterator[None]:
    """Restore training state on exit, also after an exception.

    Inside, the module is in eval mode, its parameters have no `grad`, and gradients are off but can be turned on, also
    in Lightning's validation loop. Restored are the random states of torch (CPU and every CUDA device), numpy, python
    and the generators that the module holds; each submodule's train or eval mode; every buffer, such as BatchNorm's
    statistics; each parameter's `grad` and `requires_grad`. Parameters themselves are not copied.

    Example:
        >>> norm = torch.nn.BatchNorm1d(2)
        >>> with preserve_training_state(norm):
        ...     _ = norm.train()(torch.randn(8, 2)), torch.manual_seed(7)
        >>> norm.running_mean
        tensor([0., 0.])
    """
    generators = find_generators(module)
    with preserve_rng(), preserve_generators(generators), _preserve_module(module):  # noqa: SIM117 - the state first
        with torch.inference_mode(False), torch.no_grad():
            yield


@contextmanager
def _preserve_module(module: nn.Module) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    buffers = [
        (part, name, buffer, buffer.clone())
        for part in module.modules()
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]
    parameters = [(parameter, parameter.grad, parameter.requires_grad) for parameter in module.parameters()]
    try:
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
