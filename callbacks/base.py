# SPDX-License-Identifier: Apache-2.0
"""GenerativeMonitor: runs an evaluator inside a Trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Unpack

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only
from torch.nn.parameter import is_lazy

from genmonitor._io import say, warn
from genmonitor._stop import handlers_wait
from genmonitor._validation import check_one_of
from genmonitor.callbacks.circumstances import (
    callbacks_with_state,
    circumstances,
    leaves_at_sigterm,
    processes_of,
    run_folder,
    told_to_stop,
    trainer_progress,
    way_back,
)
from genmonitor.callbacks.compat import (
    averaged_model,
    batches_seen,
    ends_here,
    find_weight_averaging,
    logged_state,
    logged_step,
    logs_discarded,
    trainer_states,
)
from genmonitor.callbacks.configuration import check_configuration, mode_notes, rare_evaluation_notes
from genmonitor.callbacks.data import all_loaders, batch_size, choice_notes, reference_images, validates
from genmonitor.callbacks.schedule import Schedule, epoch_of
from genmonitor.callbacks.validation_samples import ValidationSamples
from genmonitor.callbacks.watchers import WatchedValues, savers, saves_by_steps
from genmonitor.callbacks.weights import Weights, chosen_weights, note_other_averages
from genmonitor.distributed import Collective
from genmonitor.evaluation.evaluator import Evaluator, reading_state
from genmonitor.evaluation.results import MOMENT, Record
from genmonitor.images import streams
from genmonitor.images.model import SampledModel
from genmonitor.images.sampler import Sampler, clear_samples
from genmonitor.loggers.publisher import finish_evaluations, finish_run, print_reports
from genmonitor.monitoring.base import Moment, Monitor
from genmonitor.monitoring.options import EvaluationOptions
from genmonitor.training_state.data import preserve_data
from genmonitor.training_state.isolation import preserve_training_state
from genmonitor.training_state.proof import Trained, prove_unchanged
from genmonitor.training_state.rng import preserve_rng
from genmonitor.training_state.sharding import kept_sharded, tensor_parallel_size


@rank_zero_only
def _warn(text: str) -> None:
    warn(text)


class GenerativeMonitor(Monitor, Callback):
    """Evaluates a generator while it trains, and leaves the training unchanged.

    Monitors of one Trainer with the same `sample_fn`, `prompts`, `seed` and `batch_size` draw their samples once per
    evaluation, while the module holds the same weights. A monitor with fewer samples uses the first ones.

    Lightning's ModelParallelStrategy may split a model over the processes, with `fully_shard` (FSDP2, torch 2.13 or
    newer), tensor parallelism or both. All processes then draw equally many batches in step, and gather the parameters
    of one part at a time. The model must take the same number of forward passes for any samples. FSDPStrategy and
    DeepSpeed stage 3 are refused; `genmonitor sweep` evaluates their consolidated checkpoints after the run.

    It evaluates in `trainer.fit` alone. A checkpoint is evaluated by `genmonitor sweep`, not by `trainer.validate` or
    `trainer.test`.

    Two monitors of the same kind in one Trainer need different names: give each its own `prefix=`.

    Args:
        evaluator: Evaluator; log keys and files begin with its prefix.
        sampler: Sampler of the number of samples that the evaluator needs; `ValidationSamples` takes those of
            `validation_step`.
        schedule: Schedule of the evaluations; None for every epoch, at the end of validation if there is any.
        real_images: Dataset, DataLoader or tensor; None for the Trainer's training data for what is fixed at the start,
            and its validation data to compare with.
        weights: Weights to evaluate, see `MonitorOptions`.
        **options: Those that every monitor takes, by keyword: see `EvaluationOptions`.

    Attributes:
        history: Record of values, with `epoch` and `step`, for each evaluation of the run. It stays empty in a script
            whose strategy trains in separate processes, such as ddp_spawn and ddp_notebook; history.csv has the values.
        images_seen: Number of training images until the last evaluation, None if unknown.
    """

    def __init__(
        self,
        evaluator: Evaluator[Any],
        sampler: Sampler,
        schedule: Schedule | None = None,
        *,
        real_images: Any = None,
        weights: Weights = "auto",
        **options: Unpack[EvaluationOptions],
    ) -> None:
        says: dict[str, Any] = {"warn": _warn, "inform": rank_zero_info}
        super().__init__(evaluator, sampler, real_images=real_images, **says, **options)
        check_one_of("weights", weights, ("auto", "raw", "averaged"))
        self.weights = weights
        self.schedule = schedule or Schedule()
        self.images_seen: int | None = 0
        self._watched = WatchedValues(self.prefix)
        self._evaluated_at = self._validated_at = -1  # training batches seen until then
        self._validates = True
        self._failed: partial[None] | None = None  # messages of an evaluation, shown once the training is restored
        self._stage = "fit"

    @property
    def state_key(self) -> str:
        """Key of this monitor's state in a checkpoint, different for another monitor of its kind."""
        return f"{type(self).__qualname__}[prefix={self.prefix}]"

    # hooks

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Record the task of the Trainer, before it loads a checkpoint."""
        self._stage = stage

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Fit the evaluator, before the first training step."""
        check_configuration(self, monitors(trainer), trainer, pl_module)
        self.failures.try_again()
        # global_step alone does not suffice: it stays 0 if Lightning does not see the optimizers step
        if not self._resumed and trainer.global_step == 0 and trainer.current_epoch == 0:
            self._start_new_run()
        # a trial run writes nothing
        writes = not trainer.fast_dev_run  # type: ignore[attr-defined]
        together = [monitor.prefix for monitor in monitors(trainer)]
        self.publisher.start(run_folder(trainer), trainer.loggers, writes, together=together)
        for note in rare_evaluation_notes(self, trainer):
            self.publisher.notes.add(note)
        self._watched.start(trainer)
        self._evaluated_at = self._validated_at = -1
        if monitors(trainer)[0] is self:
            streams.forget()
        with self.isolated(trainer, pl_module), preserve_training_state(pl_module):
            self._validates = validates(trainer)
            with leaves_at_sigterm(trainer):
                self.fit_evaluator(trainer, pl_module)
            self.publisher.attempt(lambda: self._note_modes(trainer))
            if trainer.is_global_zero:
                self.publisher.publish_fit(self.evaluator, self.values, self.history)
        self._resumed = False

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, *_: Any, **__: Any
    ) -> None:
        """Count the images, and evaluate if the schedule counts steps."""
        images = batch_size(batch) * trainer.world_size // tensor_parallel_size(pl_module)
        self.images_seen = (self.images_seen or 0) + images
        seen = batches_seen(trainer)[0]
        if self.schedule.step_due(seen):
            self.evaluate_and_log(trainer, pl_module)
        if saves_by_steps(trainer, self.prefix):
            self._watched.show(trainer, seen - 1, pl_module.device)
        self._after_all_monitors(trainer)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget the samples of the previous validation run, if they are taken from validation."""
        if isinstance(self.sampler, ValidationSamples):
            self.sampler.start()

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any, **__: Any
    ) -> None:
        """Take the samples that validation drew, if needed."""
        if isinstance(self.sampler, ValidationSamples):
            self.sampler.take(pl_module, outputs, processes_of(trainer))

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate at the end of a validation run of a training."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        seen = batches_seen(trainer)[0]
        if self.schedule.epoch_due(trainer.current_epoch, self._evaluated_at < seen and ends_here(trainer)):
            self.evaluate_and_log(trainer, pl_module)
        self._show(trainer, pl_module, self._validated_at)
        self._validated_at = seen
        self._after_all_monitors(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate at the end of an epoch without validation, and at the end of the last epoch in any case."""
        seen, in_epoch = batches_seen(trainer)
        last = self._evaluated_at < seen and ends_here(trainer) and not isinstance(self.sampler, ValidationSamples)
        if last or (not self._validates and self.schedule.epoch_due(trainer.current_epoch)):
            self.evaluate_and_log(trainer, pl_module)
        self._show(trainer, pl_module, seen - in_epoch)
        self._after_all_monitors(trainer)

    def _show(self, trainer: pl.Trainer, pl_module: pl.LightningModule, since: int) -> None:
        """Show values of evaluations after so many training batches to callbacks that look at the end of an epoch.

        If weights are ranked and evaluations count steps, only those of the current weights.
        """
        if self.schedule.by_steps and savers(trainer, self.prefix):
            since = batches_seen(trainer)[0] - 1
        self._watched.show(trainer, since, pl_module.device)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Free the memory of an interrupted evaluation."""
        clear_samples(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the table and, after those of all monitors, the path of the report."""
        self.publisher.notes.set_whole_run()
        if max(self._evaluated_at, 0) < batches_seen(trainer)[0]:
            last = "the last weights of this training were not evaluated: it ended where no evaluation was due"
            none = "no weights of this training were evaluated: it was never validated when an evaluation was due"
            which = last if self._evaluated_at > 0 else none
            self.publisher.notes.warn(f"{which}. `genmonitor sweep` evaluates the checkpoints of a run.")
        if trainer.is_global_zero and self.verbose:
            self.publisher.attempt(lambda: say(self.table()) if self.table() else None)
        together = monitors(trainer)
        if trainer.is_global_zero and together[-1] is self:
            finish_run(monitor.publisher for monitor in together)
            print_reports([monitor.publisher for monitor in together if monitor.verbose])

    # one evaluation

    def fit_evaluator(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Fit the evaluator to the Trainer's data. Every process calls it."""
        comm, progress = processes_of(trainer), trainer_progress(trainer, type(self).__name__)
        real = reference_images(trainer, self.real_images, self.image_key, comm, progress)
        for note in choice_notes(trainer) if self.real_images is None else []:
            self.publisher.notes.add_once(note)
        lazy = sum(map(is_lazy, pl_module.parameters()))
        self._fit_evaluator(real, sampled_model(trainer, pl_module), comm, progress)
        if sum(map(is_lazy, pl_module.parameters())) < lazy:
            self.publisher.notes.add_once(
                "lazy layers took their initial weights at the monitor's first samples, by its seed and not the "
                "training's. Run a batch through the module before training"
            )

    def evaluate(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> Record | None:
        """Evaluate the module in its current state and publish the results. Every process calls it.

        Args:
            trainer: Trainer, which gives epoch and step.
            pl_module: Module that draws the samples.

        Returns:
            The record; None if the evaluation failed and was skipped, see `on_error`.
        """
        if self.failures.switched_off:
            return None
        moment = Moment(epoch_of(trainer, self.schedule), logged_step(trainer, pl_module), trainer.current_epoch)
        comm, progress = processes_of(trainer), trainer_progress(trainer, type(self).__name__)
        model = sampled_model(trainer, pl_module, shared=len(monitors(trainer)) > 1)
        counts = {} if self.images_seen is None else {"images_seen": self.images_seen}
        self.evaluator.is_last = ends_here(trainer)
        if self.weights == "auto":
            self.publisher.attempt(
                partial(note_other_averages, trainer, pl_module, self, self.publisher.notes.add_once)
            )
        # in the other order, changes by a sampler of the averaged model's buffers would stay
        with (
            handlers_wait(),
            self.isolated(trainer, pl_module),
            chosen_weights(self.weights, trainer, pl_module, self, self.publisher.notes.add_once) as used,
            preserve_training_state(pl_module),
        ):
            found = self._run_evaluation(model, comm, moment, progress, told_to_stop(trainer), **counts)
        failed, self._failed = self._failed, None
        if failed is not None:
            with preserve_rng():
                failed()
        if found is None:
            return None
        if trainer.is_global_zero:
            with self._data_kept(trainer), preserve_rng():  # changes of the module by a user's `on_alert` stay
                self._publish(found, lambda: circumstances(trainer, pl_module, used))
        return self.history[-1]

    def _skip(self, error: BaseException, moment: Moment, comm: Collective) -> None:
        """Delay messages, so that changes by a user's `on_alert` are not undone."""
        self._failed = partial(super()._skip, error, moment, comm)

    def evaluate_and_log(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate, and publish the values to other callbacks. Every process calls it, in a hook that may log."""
        self._evaluated_at = batches_seen(trainer)[0]
        record = self.evaluate(trainer, pl_module)
        if record is None:
            for note in self._watched.missing_notes(trainer):
                self.publisher.notes.add_once(note)
            return
        values = {key: float(value) for key, value in record.items() if key not in MOMENT}
        # not by `log`, which ends a run whose module logs the same key in this hook
        self._watched.take(values, self._evaluated_at)
        self._watched.show(trainer, self._evaluated_at - 1, pl_module.device)
        for note in self._watched.notes(trainer):
            self.publisher.notes.add_once(note)

    @contextmanager
    def isolated(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> Iterator[None]:
        """Protect the training and its data inside the block, and report changes that had to be undone."""
        average = averaged_model(find_weight_averaging(trainer))
        others, states = callbacks_with_state(trainer)
        configs = [*enumerate(trainer.lr_scheduler_configs)]
        others |= {f"scheduler {i}": config.scheduler for i, config in configs}
        others |= {f"settings of scheduler {i}": config for i, config in configs}
        others["the gradient scaler"] = getattr(trainer.precision_plugin, "scaler", None)
        trained = Trained(
            pl_module,
            optimizers=trainer.optimizers,
            others=others,
            states={"logged values": logged_state(trainer)} | trainer_states(trainer) | states,
            averaged=None if average is None else average.module,
            way_back=partial(way_back, trainer),
        )
        proof = prove_unchanged(trained, self.publisher.notes.add, processes_of(trainer).gather)
        logs = logs_discarded(pl_module, self.publisher.notes.add_once)
        with kept_sharded(pl_module), proof, self._data_kept(trainer), logs:
            yield

    def _data_kept(self, trainer: pl.Trainer) -> AbstractContextManager[None]:
        """Return a context that restores the data after reading."""
        data = {
            "the training data": trainer.train_dataloader,
            "the validation data": trainer.val_dataloaders,
            "the test data": trainer.test_dataloaders,
        }
        named = {f"{name} {i}" if i else name: x for name in data for i, x in enumerate(all_loaders(data[name]))}
        named |= {"`real_images`": self.real_images, "the datamodule": getattr(trainer, "datamodule", None)}
        return preserve_data(named, self.publisher.notes.add)

    def _after_all_monitors(self, trainer: pl.Trainer) -> None:
        """Free the common samples of the monitors and finish their evaluations."""
        together = monitors(trainer)
        if together[-1] is self:
            clear_samples(trainer)
            if trainer.is_global_zero:
                finish_evaluations(monitor.publisher for monitor in together)

    # state

    def _note_modes(self, trainer: pl.Trainer) -> None:
        for note in mode_notes(self, trainer):
            self.publisher.notes.add(note)

    def _start_new_run(self) -> None:
        """Forget an earlier run of this monitor."""
        self.history = []
        self.evaluator.forget()
        self.publisher.reset()
        self.images_seen = 0
        self.failures.reset()
        self.schedule.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain Python."""
        return {"images_seen": self.images_seen, **self.schedule.state_dict(), **super().state_dict()}

    # for Lightning it is not overridden: its message about two callbacks with one key does not name `prefix`
    state_dict.__wrapped__ = Callback.state_dict  # type: ignore[attr-defined]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state; the values fixed for the run stay fixed.

        Validating or testing a checkpoint does not rewind the monitor.

        Raises:
            ValueError: If the state is incomplete.
        """
        if self._stage != "fit":
            return
        with reading_state(self.state_key):
            self.images_seen = state_dict["images_seen"]
            self.schedule.load_state_dict(state_dict)
        super().load_state_dict(state_dict)


def sampled_model(trainer: pl.Trainer, pl_module: pl.LightningModule, shared: bool = False) -> SampledModel:
    """Return the module for samplers, in the Trainer's precision, `shared` by its monitors."""
    precision, shared_by = trainer.precision_plugin.forward_context, trainer if shared else None
    return SampledModel(pl_module, pl_module.device, precision=precision, shared_by=shared_by)


def monitors(trainer: pl.Trainer) -> list[GenerativeMonitor]:
    """Return the monitors of a Trainer, in its order."""
    return [callback for callback in trainer.callbacks if isinstance(callback, GenerativeMonitor)]  # type: ignore[attr-defined]
