# SPDX-License-Identifier: Apache-2.0
"""One evaluation in `trainer.validate` or `trainer.test`, as a run separate from that of the training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from genmonitor._io import say
from genmonitor.callbacks.configuration import check_configuration
from genmonitor.callbacks.integration.circumstances import run_folder
from genmonitor.callbacks.integration.compat import at_progress, training_dataloaders
from genmonitor.callbacks.integration.data import find_loader
from genmonitor.callbacks.integration.weights import loaded_loops, loaded_weights
from genmonitor.loggers.publisher import print_reports
from genmonitor.training_state.isolation import preserve_training_state

if TYPE_CHECKING:
    import lightning.pytorch as pl

    from genmonitor.callbacks.base import GenerativeMonitor


def evaluate_once(
    monitor: GenerativeMonitor, others: list[GenerativeMonitor], trainer: pl.Trainer, pl_module: pl.LightningModule
) -> None:
    """Evaluate the module as it is, or with the loaded checkpoint; every process calls it.

    Without training images to find the regions, it adds a note and lets the Trainer go on validating or testing.

    Args:
        monitor: Monitor, fitted first unless a training in this process has fitted it.
        others: All monitors of the Trainer.
        trainer: Trainer that validates or tests.
        pl_module: Module to evaluate.

    Raises:
        ValueError: If the configuration cannot work.
    """
    check_configuration(monitor, others, trainer, pl_module)
    if not monitor.fitted and not _has_real_images(monitor, trainer):
        monitor.publisher.notes.warn(
            "it evaluates nothing: it was not fitted before, and the Trainer has no training "
            "data to fit it to. Give the monitor `real_images=`, or the Trainer a datamodule with training data."
        )
        return
    if monitor.weights == "raw" and loaded_weights(trainer) == "averaged":
        raise ValueError(
            "Expected the raw weights for `weights`='raw', but Lightning has loaded the checkpoint's averaged ones. "
            "Give weights='auto', or evaluate the checkpoint by `genmonitor.callbacks.sweep`."
        )
    with _run_of_its_own(monitor), at_progress(trainer, loaded_loops(trainer)):
        writes, fn = not trainer.fast_dev_run, str(trainer.state.fn.value)  # type: ignore[attr-defined, union-attr]
        together = [one.prefix for one in others]
        monitor.publisher.start(run_folder(trainer), trainer.loggers, writes, f"genmonitor-{fn}", together)
        with monitor.isolated(trainer, pl_module), preserve_training_state(pl_module):
            if not monitor.fitted:
                monitor.fit_evaluator(trainer, pl_module)
            if trainer.is_global_zero:
                monitor.publisher.publish_fit(monitor.evaluator, monitor.values, [])
        monitor.evaluate_and_log(trainer, pl_module)
        if trainer.is_global_zero and monitor.history and monitor.verbose:
            monitor.publisher.attempt(lambda: say(monitor.summary()))
            if others[-1] is monitor:
                print_reports([one.publisher for one in others if one.verbose])


def _has_real_images(monitor: GenerativeMonitor, trainer: pl.Trainer) -> bool:
    return monitor.real_images is not None or find_loader(training_dataloaders(trainer), monitor.image_key) is not None


@contextmanager
def _run_of_its_own(monitor: GenerativeMonitor) -> Iterator[None]:
    """Hide the history and notes of a training inside the block, and restore them afterwards."""
    publisher, notes = monitor.publisher, monitor.publisher.notes
    before = monitor.history, notes.items, monitor.images_seen, publisher.evaluations, publisher.folder
    monitor.history, notes.items, monitor.images_seen, publisher.evaluations = [], [], None, []
    try:
        yield
    finally:
        monitor.history = [*before[0], *monitor.history]
        notes.items, monitor.images_seen, publisher.evaluations, publisher.folder = before[1:]
