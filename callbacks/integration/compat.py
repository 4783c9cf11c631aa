# SPDX-License-Identifier: Apache-2.0
"""Everything private of Lightning that monitors depend on, each with the reason that there is no public way.

Arguments are untyped where what is read is private: Lightning's own types do not promise it.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "averaged_model",
    "batches_seen",
    "find_weight_averaging",
    "given_dataloaders",
    "logged_step",
    "set_epoch",
    "validation_dataloaders",
]


def logged_step(trainer: Any, pl_module: Any) -> int:
    """Return the step under which Lightning logs what is logged now: batches after which an optimizer stepped.

    `global_step` is another number where there are several optimizers. The last batch of an epoch is counted before
    `on_train_epoch_end`, and taken back again where Lightning logs.
    """
    stepped: int = trainer.fit_loop.epoch_loop._batches_that_stepped
    return stepped - (pl_module._current_fx_name == "on_train_epoch_end")


def batches_seen(trainer: Any) -> tuple[int, int]:
    """Return how many training batches were seen in this fit, and in this epoch.

    The loops are public but their counters are documented nowhere; no hook is told both numbers.
    """
    loop = trainer.fit_loop
    return loop.total_batch_idx + 1, loop.epoch_loop.batch_progress.current.ready


def set_epoch(trainer: Any, epoch: int) -> None:
    """Make a Trainer that has just started believe that so many epochs are over: what is sampled may depend on it.

    `current_epoch` has no setter. It is the number of completed epochs; loaders are told that of processed ones.
    """
    progress = trainer.fit_loop.epoch_progress.current
    progress.processed = progress.completed = epoch


def validation_dataloaders(trainer: Any) -> Any:
    """Return the validation loaders, asking for them where Lightning has not yet; None if nothing is validated.

    `val_dataloaders` is None until the first epoch that validates, which may come after the first evaluation.
    """
    loaders = trainer.val_dataloaders
    if loaders is None and trainer.enable_validation:
        loaders = trainer.fit_loop.epoch_loop.val_loop._data_source.dataloader()
    return loaders


def given_dataloaders(trainer: Any) -> tuple[Any, Any] | None:
    """Return the training and the validation loaders that `fit` was given; None where a hook made one of them.

    The Trainer's public attributes have loaders whose samplers Lightning replaced. In a CombinedLoader it replaces them
    in place, so of that one nothing is left either.
    """
    sources = [loop._data_source for loop in (trainer.fit_loop, trainer.fit_loop.epoch_loop.val_loop)]
    if any(source.is_module() or hasattr(source.instance, "flattened") for source in sources):
        return None
    return sources[0].instance, sources[1].instance


def find_weight_averaging(trainer: Any) -> Any:
    """Return the Trainer's WeightAveraging callback, or None.

    By name: `lightning` and `pytorch_lightning` have unrelated classes of this name.
    """
    named = (c for c in trainer.callbacks if "WeightAveraging" in {base.__name__ for base in type(c).__mro__})
    return next(named, None)


def averaged_model(averaging: Any) -> Any:
    """Return the averaged model of a WeightAveraging callback, None before there is one; it has no public name."""
    return None if averaging is None else averaging._average_model
