# SPDX-License-Identifier: Apache-2.0
"""Proving at run time that an evaluation left the training as it was."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from genmonitor.training_state.isolation import local_part
from genmonitor.training_state.sharding import gather, sharded_parts

PROOFS = 2
"""How often a run proves that nothing of the training moved: when it is fitted, and at the first evaluation."""
NAMED = 3
"""Things that moved which a note names."""


@contextmanager
def prove_unchanged(
    module: nn.Module,
    report: Callable[[str], Any],
    optimizers: Iterable[torch.optim.Optimizer] = (),
    averaged: nn.Module | None = None,
) -> Iterator[None]:
    """Report what the block changes of parameters, buffers, averaged weights, optimizer states and random states.

    Each tensor is read once before and once after: for a billion parameters that takes seconds on a CPU, so monitors
    do it for the first evaluation of a fit.

    Args:
        module: what is trained.
        report: takes a sentence that names what moved; not called if nothing did.
        optimizers: those that train it.
        averaged: the module's second set of weights, where something averages them.
    """
    trained = module, list(optimizers), averaged
    before = training_digest(*trained)
    yield
    after = training_digest(*trained)
    here = [name for name in before | after if before.get(name) != after.get(name)]
    # of a sharded model, what moved may lie on another process alone
    if moved := list(dict.fromkeys(chain(*gather(sharded_parts(module), here)))):
        named = ", ".join(moved[:NAMED]) + (f" and {len(moved) - NAMED} more" if len(moved) > NAMED else "")
        report(
            f"drawing samples changed the training: {named}. The run is no longer what it would have been without the "
            "monitor. Leave these alone in `sample`, or give a `sample_fn` that works on a copy."
        )


def training_digest(
    module: nn.Module, optimizers: Iterable[torch.optim.Optimizer] = (), averaged: nn.Module | None = None
) -> dict[str, int]:
    """Return a number for each parameter, buffer, optimizer state and global random state; it changes with any bit."""
    out: dict[str, int] = {}
    for which, weights in (("", module), ("averaged ", averaged)):
        if weights is not None:
            out |= {f"{which}parameter {name}": _digest(x) for name, x in weights.named_parameters()}
            out |= {f"{which}buffer {name}": _digest(x) for name, x in weights.named_buffers()}
    for index, optimizer in enumerate(optimizers):
        for number, state in enumerate(optimizer.state.values()):
            for name, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, Tensor):
                    out[f"{name} of parameter {number} in optimizer {index}"] = _digest(value)
    return out | _random_digests()


def _digest(tensor: Tensor) -> int:
    """Return the sum of the bits of a tensor's part here, read as whole numbers, so that NaN equals itself."""
    tensor = local_part(tensor)
    if is_lazy(tensor) or tensor.is_meta or tensor.is_nested or tensor.is_quantized or not tensor.numel():
        return 0
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.detach().coalesce().values()
    if tensor.layout is not torch.strided:
        return 0
    values = tensor.detach().contiguous().view(-1)
    values = torch.view_as_real(values).contiguous().view(-1) if values.is_complex() else values
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    return int(values.view(words).sum(dtype=torch.int64))


def _random_digests() -> dict[str, int]:
    numpy: Any = np.random.get_state()  # noqa: NPY002
    states: dict[str, Any] = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (numpy[1].tobytes(), *numpy[2:]),
        "python": random.getstate(),
    }
    if torch.cuda.is_initialized():
        states |= {f"CUDA {i}": x.numpy().tobytes() for i, x in enumerate(torch.cuda.get_rng_state_all())}
    if torch.backends.mps.is_available():
        states["MPS"] = torch.mps.get_rng_state().cpu().numpy().tobytes()
    return {f"the random state of {name}": hash(state) for name, state in states.items()}
