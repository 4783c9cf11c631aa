# SPDX-License-Identifier: Apache-2.0
"""Checks of a monitor and its Trainer before the first training step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genmonitor.callbacks.validation_samples import ValidationSamples, check_reuse
from genmonitor.callbacks.watchers import SCHEDULER, saves_by_steps, waiting
from genmonitor.callbacks.weights import check_weights
from genmonitor.encoders.frozen import check_not_shared
from genmonitor.images.model import SampledModel
from genmonitor.training_state.sharding import SWEEP

if TYPE_CHECKING:
    import lightning.pytorch as pl

    from genmonitor.callbacks.base import GenerativeMonitor


def check_configuration(
    monitor: GenerativeMonitor, others: list[GenerativeMonitor], trainer: pl.Trainer, pl_module: pl.LightningModule
) -> None:
    """Refuse a configuration that cannot work.

    Args:
        monitor: The monitor.
        others: All monitors of the Trainer.
        trainer: Trainer that runs the monitor.
        pl_module: Module to evaluate.

    Raises:
        ValueError: If there is no way to draw samples, the weights to evaluate do not exist, or the strategy splits the
            model in an unsupported way. Also if an encoder shares parameters with the model, two monitors log under the
            same names, or an EarlyStopping would end the training before the second evaluation.
    """
    if isinstance(monitor.sampler, ValidationSamples):
        check_reuse(monitor, trainer)
    else:
        monitor.sampler.resolve(SampledModel(pl_module, pl_module.device))
    check_weights(monitor.weights, trainer)
    _check_patience(monitor, trainer)
    _check_sharding(trainer)
    for name, network in monitor.evaluator.networks().items():
        check_not_shared(name, network, pl_module)
    if [other.prefix for other in others].count(monitor.prefix) > 1:
        raise ValueError(
            f"Expected monitors with different prefixes, but several have `prefix`={monitor.prefix!r}. "
            f"Give one of them another, for example prefix={monitor.prefix + '_2'!r}."
        )


def _check_patience(monitor: GenerativeMonitor, trainer: pl.Trainer) -> None:
    """Refuse an EarlyStopping that would always end the training before the second evaluation."""
    rarely, n = trainer.check_val_every_n_epoch or 1, monitor.schedule.every_n_epochs
    between = -(-n // rarely) * rarely if trainer.enable_validation else n
    for _, stop in [] if monitor.schedule.by_steps else waiting(trainer, monitor.prefix):
        checked = 1 if getattr(stop, "_check_on_train_epoch_end", False) else rarely
        missing = between // checked - 1
        if stop in trainer.early_stopping_callbacks and stop.patience <= missing:
            raise ValueError(
                f"Expected EarlyStopping with `patience` of more than the {missing} epochs between two evaluations of "
                f"{stop.monitor!r}, which count as no improvement, but got {stop.patience}. Give more, or evaluate at "
                "each epoch that it checks."
            )


def _check_sharding(trainer: pl.Trainer) -> None:
    """Refuse a sharded model that cannot continue after an error while samples are drawn."""
    names = [base.__name__ for base in type(trainer.strategy).__mro__]
    refused = "FSDPStrategy" if "FSDPStrategy" in names else ""
    refused = "DeepSpeed stage 3" if getattr(trainer.strategy, "zero_stage_3", False) else refused
    if refused:
        raise ValueError(
            "Expected a strategy that keeps the whole model on every process, or ModelParallelStrategy (FSDP2, tensor "
            f"parallelism), but got {refused}, which cannot continue after an error in sampling. Train with "
            f"one of these, or {SWEEP}"
        )


def rare_evaluation_notes(monitor: GenerativeMonitor, trainer: pl.Trainer) -> list[str]:
    """Return notes on callbacks that read a value of the monitor more often than it evaluates."""
    rarely = not monitor.schedule.every_epoch
    by_steps, by_epochs = saves_by_steps(trainer, monitor.prefix), trainer.check_val_every_n_epoch == 1
    keeps_best: list[Any] = []
    if not (by_steps or monitor.schedule.by_steps):  # they see a value in every epoch, and epochs without one rank last
        keeps_best = [x for x in trainer.checkpoint_callbacks if getattr(x, "_every_n_epochs", 0) == 1]
    notes = [
        f"{name} monitors {x.monitor!r}, which is not evaluated each time that it is read. A missing evaluation counts "
        "as no improvement: let both come at the same epochs or steps"
        for name, x in waiting(trainer, monitor.prefix)
        if (rarely and x not in keeps_best)
        or (name == SCHEDULER and (x.interval == "step" or not by_epochs))
        or (by_steps and x in trainer.checkpoint_callbacks)
    ]
    if isinstance(monitor.sampler, ValidationSamples) and trainer.check_val_every_n_epoch != 1:
        notes.append("the last epoch is evaluated only if it is validated, since `reuse`='validation' draws no samples")
    return notes


def mode_notes(monitor: GenerativeMonitor, trainer: pl.Trainer) -> list[str]:
    """Return notes on callbacks that mistake the worst value of a fitted monitor for the best.

    ModelCheckpoint and EarlyStopping look for the lowest value by default.
    """
    better = {f"{monitor.prefix}/{spec.key}": spec.better for spec in monitor.values() if spec.better is not None}
    notes = []
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        key, mode = str(getattr(callback, "monitor", None)), getattr(callback, "mode", None)
        right = {"high": "max", "low": "min"}.get(better.get(key) or "")
        if right and mode not in (None, right):
            notes.append(
                f"{type(callback).__name__} monitors {key!r} with mode={mode!r}, but {better[key]}er values are "
                f"better. Give mode={right!r}"
            )
    return notes
