# SPDX-License-Identifier: Apache-2.0
"""Proving at every evaluation that it left the training as it was, and putting back what it moved."""

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

MOST_COPIES, OF_FREE = 2**31, 4
"""Memory for copies of weights and optimizer states: 2 GiB, and no more than a quarter of what is free."""
NAMED = 3
"""Number of things that a note names."""
CGROUP = Path("/sys/fs/cgroup")
_proof: ContextVar[tuple[list[Any], list[Any]] | None] = ContextVar("_proof", default=None)
"""What the block around remembers, and what it moved so far: the names of what is back, and of what is not."""


@dataclass(frozen=True)
class Trained:
    """What an evaluation must leave as it was.

    Attributes:
        module: That is trained.
        optimizers: That train it.
        others: What else decides how the training goes on, by name, such as learning-rate schedulers.
        states: What reads and what sets further states, by name, such as logged values.
        averaged: A second set of the module's weights, where something averages them.
        way_back: What to do where something cannot be put back.
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
    """Put back what the block changes of a training, also where it fails, and report it.

    Restored are the values of parameters, buffers and averaged weights, states and groups of optimizers, learning-rate
    schedulers and logged values. What moved is told by a comparison with copies on the CPU or, on a GPU, by
    fingerprints computed there. Copies take up to 2 GiB, and no more than a quarter of the memory that is free: what
    is larger is fingerprinted, and a change is reported that cannot be put back.

    Args:
        trained: What must stay as it is.
        report: Takes a sentence that names what moved; not called if nothing did.
        gather: Returns the values of all processes, of which each may move something else; called if nothing raised.
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
    """Put back what functions of the user's own change elsewhere than in a module, and let the proof around name it.

    That is what closures, global variables, default arguments and bound objects hold, theirs and those of
    the module's methods.

    Args:
        functions: That the block calls, by the names that messages use.
        module: That the proof has in its care.
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


def _snapshot(trained: Trained) -> Snapshot:
    snapshot = Snapshot({}, min(MOST_COPIES, _free_memory() // OF_FREE), ours=False)
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
    """Say what was put back, and what could not be, on any of the processes."""
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
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _free_memory() -> int:
    """Return the bytes of memory that this process may still take; as much as any machine has where nobody says."""
    free = sys.maxsize
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    with suppress(OSError, ValueError):  # of a container
        limit, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, max(limit - used, 0))
    return free
