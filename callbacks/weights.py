# SPDX-License-Identifier: Apache-2.0
"""The weights to evaluate: those that train, their average, or those of a loaded checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import lightning.pytorch as pl
import torch

from genmonitor.callbacks.compat import averaged_model, find_weight_averaging, weight_averagings
from genmonitor.monitoring.averages import has_begun, values_exchanged

Weights = Literal["auto", "raw", "averaged"]


def check_weights(weights: Weights, trainer: pl.Trainer) -> None:
    """Refuse averaged weights if nothing averages them, or if there are two averages."""
    averages = weight_averagings(trainer)
    if weights != "raw" and len(averages) > 1:
        names = " and ".join(type(x).__name__ for x in averages)
        raise ValueError(
            f"Expected one callback that averages weights, but the Trainer has {names}. Give weights='raw', or leave "
            "one of them out."
        )
    if weights == "averaged" and find_weight_averaging(trainer) is None:
        raise ValueError(
            "Expected a WeightAveraging callback for `weights`='averaged', but the Trainer has none. "
            "Add one, or use weights='auto'."
        )


def note_other_averages(
    trainer: pl.Trainer, pl_module: pl.LightningModule, monitor: pl.Callback, note: Callable[[str], Any]
) -> None:
    """Name the user's callbacks that hold weights like those of the module, unless they are swapped in now."""
    order: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in order:
        swaps = trainer.validating and _has_hook(callback, "on_validation_start", "on_validation_epoch_start")
        first = order.index(callback) < order.index(monitor) and not _has_hook(callback, "on_validation_end")
        out_again = first and _has_hook(callback, "on_validation_epoch_end")
        ours = type(callback).__module__.startswith(("lightning", "pytorch_lightning", "genmonitor"))
        if ours or (swaps and not out_again):
            continue
        for name, held in vars(callback).items():
            if any(not torch.equal(x.to(y), y) for x, y in _pairs(held, pl_module)):
                note(
                    f"{type(callback).__name__}.{name} holds weights like the module's, which are not those evaluated. "
                    "If they are an average: swap them in in `on_validation_start` and out in `on_validation_end`, or "
                    "give `sample_fn=` that draws with them. Else give weights='raw'."
                )


def _has_hook(callback: pl.Callback, *names: str) -> bool:
    return any(getattr(type(callback), name) is not getattr(pl.Callback, name) for name in names)


def _pairs(held: Any, module: torch.nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pair held weights with those of the outermost part of a module that they match; [] if they match none."""
    given = list(held.parameters()) if isinstance(held, torch.nn.Module) else getattr(held, "shadow_params", held)
    for part in module.modules():
        own = dict(part.named_parameters())
        # buffers may be among the others of a dictionary
        values = [given.get(name) for name in own] if isinstance(given, Mapping) else given
        shapes = [x.shape for x in own.values()]
        if own and isinstance(values, list) and [getattr(x, "shape", None) for x in values] == shapes:
            return list(zip(values, own.values(), strict=True))
    return []


@contextmanager
def chosen_weights(
    weights: Weights, trainer: pl.Trainer, pl_module: pl.LightningModule, monitor: Any, warn: Callable[[str], Any]
) -> Iterator[Literal["raw", "averaged"]]:
    """Put the chosen weights into the module inside the block; the raw ones until the average has seen weights.

    An average that begins late equals the untrained model until then.

    WeightAveraging swaps the averaged weights in at the start of validation and out in its `on_validation_epoch_end`. A
    monitor after it in the list of callbacks therefore finds the raw ones again.

    Yields:
        Name of the weights.
    """
    averaging = find_weight_averaging(trainer)
    average = averaged_model(averaging)
    if average is None:
        yield "raw"
        return
    order: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    present = "averaged" if trainer.validating and order.index(averaging) > order.index(monitor) else "raw"
    wanted: Literal["raw", "averaged"] = "raw" if weights == "raw" else "averaged"
    if wanted == "averaged" and not has_begun(average):
        warn(f"{type(averaging).__name__} has averaged no weights yet, so the raw ones are evaluated until it has")
        wanted = "raw"
    if present == wanted:
        yield wanted
        return
    sides = ([*module.parameters(), *module.buffers()] for module in (average.module, pl_module))
    with values_exchanged(list(zip(*sides, strict=True))):
        yield wanted
