# SPDX-License-Identifier: Apache-2.0
"""Check at every evaluation that the training is unchanged, and restoration of changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from genmonitor.training_state.data import values_preserved
from genmonitor.training_state.rng import State, global_states
from genmonitor.training_state.snapshot import MAX_BYTES, Snapshot

_proof: ContextVar[tuple[list[Any], list[Any]] | None] = ContextVar("_proof", default=None)
"""Entries of the surrounding block, and the names of objects restored and not restored so far."""


@dataclass(frozen=True)
class Trained:
    """Parts of a training that an evaluation must not change.

    Attributes:
        module: Module that is trained.
        optimizers: Optimizers that train it.
        others: Further objects that determine the training, by name, such as learning-rate schedulers.
        states: Getters and setters of further states, by name, such as logged values.
        averaged: Averaged weights of the module, if any.
        way_back: Function that returns advice for changes that cannot be undone.
    """

    module: nn.Module
    optimizers: Iterable[Optimizer] = ()
    others: Mapping[str, Any] = field(default_factory=dict)
    states: Mapping[str, State] = field(default_factory=dict)
    averaged: nn.Module | None = None
    way_back: Callable[[], str] = lambda: "Go back to the last checkpoint."


@contextmanager
def prove_unchanged(
    trained: Trained, report: Callable[[str], Any], gather: Callable[[Any], list[Any]] = lambda value: [value]
) -> Iterator[None]:
    """Undo changes of a training by the block, also after errors, and report them.

    This covers the values of parameters, buffers and averaged weights, states and groups of optimizers, learning-rate
    schedulers and logged values. Changes are detected by a comparison with copies on the CPU or, on a GPU, by
    fingerprints computed there. Copies take up to 2 GiB and a quarter of the free memory. The rest is fingerprinted
    only, so that its changes are reported but cannot be undone.

    Args:
        trained: Parts that must not change.
        report: Function that gets a sentence on the changes, if there are any.
        gather: Function that returns the values of all processes, whose changes may differ; called if nothing raised.
    """
    before = _snapshot(trained)
    moved: list[tuple[list[str], list[str]]] = []
    token = _proof.set((before.held, moved))
    try:
        yield
    except BaseException:  # the other processes may never come
        _report(trained, report, [before.restore(), *moved])
        raise
    finally:
        _proof.reset(token)
    _report(trained, report, chain(*gather([before.restore(), *moved])))


@contextmanager
def preserve_code(functions: Mapping[str, Any], module: nn.Module) -> Iterator[None]:
    """Undo changes by the user's functions outside of a module, and have the surrounding check report them.

    This covers closures, global variables, default arguments and bound objects of these functions and of the module's
    methods.

    Args:
        functions: Functions that the block calls, by their names in messages.
        module: Module that the surrounding check covers.
    """
    if (proof := _proof.get()) is None:
        yield
        return
    held, moved = proof
    kinds = {kind.__name__: kind for part in module.modules() for kind in type(part).__mro__}
    known = [*held, *module.modules(), *values_preserved()]
    snapshot = Snapshot({}, MAX_BYTES, known=known, ours=False, code=True)
    snapshot.add({**functions, **kinds})
    try:
        yield
    finally:
        moved.append(snapshot.restore())


def report_stuck(names: list[str]) -> None:
    """Have the surrounding check report objects that could not be restored."""
    if names and (proof := _proof.get()) is not None:
        proof[1].append(([], names))


def _snapshot(trained: Trained) -> Snapshot:
    snapshot = Snapshot({}, min(2**31, _free_memory() // 4), ours=False)
    for which, weights in (("", trained.module), ("averaged ", trained.averaged)):
        if weights is not None:
            parameters = {f"{which}parameter {name}": x for name, x in weights.named_parameters()}
            buffers = {f"{which}buffer {name}": x for name, x in weights.named_buffers()}
            snapshot.add_tensors({**parameters, **buffers}, values=True)
    for index, optimizer in enumerate(trained.optimizers):
        for number, state in enumerate(optimizer.state.values()):
            snapshot.add({f"the state of parameter {number} in optimizer {index}": state})
        snapshot.add({f"optimizer {index}": optimizer})
    snapshot.add(trained.others)
    randoms = {f"the random state of {name}": state for name, state in global_states().items()}
    snapshot.add_states({**trained.states, **randoms})
    return snapshot


def _report(trained: Trained, report: Callable[[str], Any], moved: Iterable[tuple[list[str], list[str]]]) -> None:
    """Report changes that were undone, and those that could not be, on any of the processes."""
    back, stuck = (list(dict.fromkeys(chain(*names))) for names in zip(*moved, strict=True))
    remedy = "Leave it alone in `sample`, or give a `sample_fn` that works on a copy"
    if back:
        report(f"an evaluation changed the training, which is put back as it was: {_named(back)}. {remedy}")
    if stuck:
        report(
            f"an evaluation changed the training, and it cannot be put back: {_named(stuck)}. The run is no longer "
            f"what it would have been without the monitor. {trained.way_back()} {remedy}"
        )


def _named(names: list[str]) -> str:
    most = 3
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _free_memory() -> int:
    """Return the free memory for this process in bytes; a very large number if unknown."""
    free = sys.maxsize
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    with suppress(OSError, ValueError):  # of a container
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, max(limit - used, 0))
    return free
