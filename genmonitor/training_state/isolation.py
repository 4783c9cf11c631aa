# SPDX-License-Identifier: Apache-2.0
"""Isolation of the training from an evaluation: random states, modes, buffers, gradients, attributes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter

import numpy as np
import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from genmonitor.training_state.proof import report_stuck
from genmonitor.training_state.rng import State, global_states
from genmonitor.training_state.snapshot import MAX_BYTES, Snapshot

ATTRIBUTES = (
    *(f"backends.{x}" for x in ("fp32_precision", "opt_einsum.enabled", "opt_einsum.strategy")),
    *(f"backends.cuda.matmul.{x}" for x in ("fp32_precision", "allow_tf32", "allow_fp16_accumulation")),
    *(f"backends.cuda.matmul.allow_{x}_reduced_precision_reduction" for x in ("bf16", "fp16")),
    *(f"backends.cudnn.{x}" for x in ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")),
    *(f"backends.mkldnn.{x}" for x in ("enabled", "deterministic", "allow_tf32")),
    *(f"backends.{x}fp32_precision" for x in ("cudnn.", "cudnn.conv.", "cudnn.rnn.", "mkldnn.", "mkldnn.matmul.")),
    *(f"backends.mkldnn.{x}.fp32_precision" for x in ("conv", "rnn")),
    "utils.deterministic.fill_uninitialized_memory",
)
"""Settings of torch that are attributes, by their path."""


def _set_environment(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _settings() -> list[State]:
    """Return getters and setters of the working directory, the environment and settings of NumPy and torch."""
    cuda = torch.backends.cuda
    return [
        (os.getcwd, os.chdir),
        (lambda: dict(os.environ), _set_environment),
        (np.geterr, lambda before: np.seterr(**before)),
        (lambda: sys.float_info.min / 2 == 0, torch.set_flush_denormal),
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_default_device, torch.set_default_device),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        *map(_attribute, ATTRIBUTES),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        *(
            (getattr(cuda, f"{x}_sdp_enabled"), getattr(cuda, f"enable_{x}_sdp"))
            for x in ("flash", "mem_efficient", "math", "cudnn")
        ),
        (cuda.fp16_bf16_reduction_math_sdp_allowed, cuda.allow_fp16_bf16_reduction_math_sdp),
        *((partial(torch.get_autocast_dtype, x), partial(torch.set_autocast_dtype, x)) for x in ("cpu", "cuda")),
        (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    ]


def _attribute(path: str) -> State:
    """Return getter and setter of an attribute of torch, which older versions may lack."""
    owner, _, name = path.rpartition(".")
    return lambda: attrgetter(path)(torch), lambda value: setattr(attrgetter(owner)(torch), name, value)


@contextmanager
def preserve_training_state(module: nn.Module) -> Iterator[None]:
    """Restore the training state on exit, also after an exception.

    Inside, the module is in eval mode, its parameters have no `grad`, and gradients are off but can be turned on, also
    in Lightning's validation loop. Restored are

    - the random states of torch (CPU, every CUDA device, MPS), numpy, python and the generators that the module holds;
    - the working directory, the environment, and NumPy's treatment of errors;
    - the hooks of all networks and of all optimizers;
    - torch's default dtype and device, number of threads, deterministic, anomaly, cuDNN, oneDNN and attention modes,
      float32 precision and flushing of denormal numbers;
    - every attribute of each submodule and of the plain objects and containers in it, such as its mode, a counter, a
      hook or an attribute of its class;
    - tensors: their memory (which `data` and `half` replace), `grad`, `requires_grad` and hooks;
    - the values of buffers, such as BatchNorm's statistics, and of other tensors and arrays, up to 256 MiB.

    Changes of parameter values are not undone here. Neither are objects that hold a file or a thread, nor the progress
    of an iterator that cannot be copied, which the surrounding check reports. Objects nested more than twelve levels
    deep, or deep among more than 1000 items, are not restored. The same holds for objects only reachable from a
    closure, a global variable, a queue, a weak reference, or an object of torch or C; generators in closures are.

    Example:
        >>> norm = torch.nn.BatchNorm1d(2)
        >>> with preserve_training_state(norm):
        ...     _ = norm.train()(torch.randn(8, 2)), torch.manual_seed(7)
        >>> norm.running_mean
        tensor([0., 0.])
    """
    parts = dict(module.named_modules())
    # of a lazy module initialized by sampling only the mode, since the sizes must match the parameters
    lazy = {name: part for name, part in parts.items() if _is_uninitialized(part)}
    modes = {
        name: (partial(getattr, part, "training"), partial(setattr, part, "training")) for name, part in lazy.items()
    }
    snapshot = Snapshot({}, MAX_BYTES, known=lazy.values(), ours=False)  # a monitor keeps its results
    snapshot.add_states(
        {**{str(number): setting for number, setting in enumerate(_settings())}, **global_states(), **modes}
    )
    snapshot.add_tensors(dict(module.named_parameters()), values=False)
    snapshot.add({**dict(module.named_buffers()), **{name: part for name, part in parts.items() if name not in lazy}})
    for of_all in ("torch.nn.modules.module", "torch.optim.optimizer"):  # hooks of all networks, and of all optimizers
        hooks = {name: x for name, x in vars(sys.modules[of_all]).items() if name.startswith("_global_")}
        snapshot.add({name: x for name, x in hooks.items() if isinstance(x, dict)})
    try:
        for part in module.modules():
            part.training = False
        for parameter in module.parameters():
            parameter.grad = None  # removed instead of copied, so that nothing can be added to it
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        report_stuck(snapshot.restore()[1])


def _is_uninitialized(part: nn.Module) -> bool:
    """Return True if a lazy module has not yet taken its sizes from a batch."""
    return isinstance(part, LazyModuleMixin) and part.has_uninitialized_params()  # type: ignore[misc]
