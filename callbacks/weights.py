# SPDX-License-Identifier: Apache-2.0
"""Which weights a check measures where Lightning's WeightAveraging keeps a second set of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def check_weights(weights: str, trainer: Any) -> None:
    """Refuse averaged weights where nothing averages them."""
    if weights == "averaged" and _averaging(trainer) is None:
        raise ValueError(
            "Expected a WeightAveraging callback for `weights`='averaged', but the Trainer has none. "
            "Add one, or use weights='auto'."
        )


def check_whole(trainer: Any) -> None:
    """Refuse a strategy under which no process holds the whole model.

    Drawing samples is then work that all processes must do in step, and each draws a share of its own here: one that
    has fewer batches, or none, would leave the others waiting.
    """
    strategy = trainer.strategy
    name = type(strategy).__name__
    if name in ("FSDPStrategy", "ModelParallelStrategy") or getattr(strategy, "zero_stage_3", False):
        raise ValueError(
            "Expected a strategy that keeps the whole model on every process, but got "
            f"{name}, which splits its parameters. Train with strategy='ddp' (or DeepSpeed up to stage 2), or leave "
            "the monitor out and run it over the consolidated checkpoints."
        )


@contextmanager
def chosen_weights(weights: str, trainer: Any, pl_module: Any, monitor: Any) -> Iterator[str]:
    """Have the chosen weights in the module inside the block.

    WeightAveraging swaps the averaged weights in when validation starts and out in its own `on_validation_epoch_end`,
    so a monitor behind it in the list of callbacks finds the raw ones again.

    Yields:
        Which weights they are: "raw" or "averaged".
    """
    averaging = _averaging(trainer)
    average = None if averaging is None else averaging._average_model
    if average is None:
        yield "raw"
        return
    order = trainer.callbacks
    present = "averaged" if trainer.validating and order.index(averaging) > order.index(monitor) else "raw"
    wanted = "raw" if weights == "raw" else "averaged"
    if present == wanted:
        yield wanted
        return
    _swap(average.module, pl_module)
    try:
        yield wanted
    finally:
        _swap(average.module, pl_module)


def _averaging(trainer: Any) -> Any:
    # by name: lightning and pytorch_lightning have unrelated classes of this name
    named = (c for c in trainer.callbacks if "WeightAveraging" in {base.__name__ for base in type(c).__mro__})
    return next(named, None)


def _swap(a: torch.nn.Module, b: torch.nn.Module) -> None:
    pairs = zip(itertools.chain(a.parameters(), a.buffers()), itertools.chain(b.parameters(), b.buffers()), strict=True)
    with torch.no_grad():
        for x, y in pairs:
            kept = x.detach().clone()
            x.data.copy_(y.data)
            y.data.copy_(kept)
