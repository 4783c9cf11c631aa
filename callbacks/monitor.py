# SPDX-License-Identifier: Apache-2.0
"""What all monitors share: when to check, how to leave the run alone, what to do about errors, state and logging."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from genmonitor._validation import NotFiniteError, check_at_least, check_one_of
from genmonitor.callbacks import descriptions, loggers, shared_samples
from genmonitor.callbacks.data import ImageKey, batch_size
from genmonitor.callbacks.framework import warn
from genmonitor.callbacks.guard import left_alone
from genmonitor.callbacks.in_step import FailedElsewhereError, in_step
from genmonitor.callbacks.manifest import run_folder
from genmonitor.callbacks.prompts import PromptedSampleFn, Prompts
from genmonitor.callbacks.sampled import monitors
from genmonitor.callbacks.sampling import SampleFn, seed_everything
from genmonitor.callbacks.shown import WHOLE_RUN, Shown, trace
from genmonitor.callbacks.weights import check_weights, check_whole, chosen_weights

MAX_FAILURES = 3
PROBE = 16
WORST = 1e9


class GenerativeMonitor(Shown):
    """Base of the monitors: a subclass says what to prepare, what to measure of the samples, and what to draw.

    Monitors of one Trainer that ask for the same samples draw them once per check: the same `sample_fn`, `prompts`,
    `seed` and `sample_batch_size`, while the module holds the same weights; one with fewer `n_samples` takes the first
    of the others'.

    Args:
        n_samples: images generated at each check.
        every_n_epochs: check in every n-th epoch, at the end of validation if there is any, else at the end of the
            epoch.
        every_n_train_steps: check after the first training batch and then after every n-th instead.
        prompts: strings, or class labels as integers, for a conditional module: sample i has prompt i modulo their
            number. None for samples without prompts.
        sample_fn: `sample_fn(pl_module, n)` returns n images [n, C, H, W]; None calls `pl_module.sample(n)`. With
            `prompts` the arguments are `(pl_module, prompts)` and the method is `sample_prompts(prompts)`: a list of
            strings, or labels as int64 [n] on the module's device.
        sample_batch_size: images per call of it.
        real_images: a Dataset, DataLoader or tensor; None for the Trainer's: training data for what is fixed at the
            start, validation data to compare with.
        image_key: where the images are in a batch: None to look for them, else a key, an index or a callable.
        seed: of the samples and of the choice of real images.
        weights: which weights to measure where Lightning's WeightAveraging runs: "auto" for the averaged ones where
            there are any, "raw" or "averaged".
        on_error: "warn" skips a check that fails, and switches the monitor off after 3 in a row; "raise" lets it stop
            the run. A wrong configuration always raises, before the first training step.
    """

    def __init__(
        self,
        n_samples: int,
        *,
        every_n_epochs: int = 1,
        every_n_train_steps: int | None = None,
        prompts: Sequence[str] | Sequence[int] | Tensor | None = None,
        sample_fn: SampleFn | PromptedSampleFn | None = None,
        sample_batch_size: int = 100,
        real_images: Any = None,
        image_key: ImageKey = None,
        seed: int = 0,
        weights: str = "auto",
        on_error: str = "warn",
    ) -> None:
        self.n_samples = check_at_least("n_samples", n_samples, 2)
        self.every_n_epochs = check_at_least("every_n_epochs", every_n_epochs, 1)
        if every_n_train_steps is not None:
            check_at_least("every_n_train_steps", every_n_train_steps, 1)
        self.every_n_train_steps = every_n_train_steps
        if sample_fn is not None and not callable(sample_fn):
            raise TypeError(f"Expected `sample_fn` to be callable, but got {type(sample_fn).__name__}.")
        if prompts is not None:  # a subclass may have set them before
            self.prompts = Prompts(prompts)
        self.sample_fn = sample_fn
        self.sample_batch_size = check_at_least("sample_batch_size", sample_batch_size, 1)
        self.real_images = real_images
        self.image_key = image_key
        self.seed = check_at_least("seed", seed, 0)
        self.weights = check_one_of("weights", weights, ("auto", "raw", "averaged"))
        self.on_error = check_one_of("on_error", on_error, ("warn", "raise"))
        self.history: list[dict[str, float]] = []
        self.images_seen = 0
        self._failures = 0
        self._not_finite = False
        self._last_epoch: int | None = None
        self._folder = Path()
        self._described = False
        self._notes = []

    # what a subclass says

    def prepare(self, trainer: Any, pl_module: Any) -> None:
        """Fix whatever stays fixed for the run; raise ValueError for a wrong configuration. Every process calls it."""
        raise NotImplementedError

    def collect(self, samples: Tensor) -> None:
        """Take in this process's share of the samples, without talking to other processes."""

    def measure(self, trainer: Any, samples: Tensor) -> dict[str, float]:
        """Return the values of one check. Every process calls it, once `collect` went well on all of them.

        It may talk to the others once, before anything that can fail on one process alone; what talks to them more
        often does so in several parts, each of them by `in_step`.
        """
        raise NotImplementedError

    def first_figures(self) -> dict[str, Figure]:
        """Draw what is shown once. Rank zero calls it."""
        return {}

    def write_once(self) -> None:
        """Write the files that manifests refer to, into `_folder`. Rank zero calls it, once prepared."""

    def figures(self, samples: Tensor) -> dict[str, Figure]:
        """Draw what is shown at each check, from `history` and rank zero's samples. Rank zero calls it."""
        return {}

    def after_check(self, trainer: Any) -> None:
        """Say in words what a check found. Rank zero calls it."""

    def summary(self) -> str:
        """Say in words what the run found."""
        return ""

    # when

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Prepare, before the first training step."""
        self.samples_of(pl_module)
        check_weights(self.weights, trainer)
        check_whole(trainer)
        self._now, self._page = WHOLE_RUN, None
        if [getattr(monitor, "prefix", None) for monitor in monitors(trainer)].count(self.prefix) > 1:
            raise ValueError(
                f"Expected monitors that log under names of their own, but several have `prefix`={self.prefix!r}. "
                'Make a subclass with another for one of them: class Raw(PixelClusterMonitor): prefix = "cms_raw".'
            )
        self._warn_of_rare_checks(trainer)
        self._folder, self._described = run_folder(trainer) / "genmonitor", False
        if self._failures >= MAX_FAILURES:  # switched off in an earlier fit: this one tries again
            self._failures = 0
        with left_alone(pl_module):
            self.prepare(trainer, pl_module)
        if trainer.is_global_zero:
            with left_alone(pl_module):
                self._show(lambda: self._draw(trainer, self.first_figures))
                self._show(self.write_once)
                self._show(lambda: self._lay_out(trainer))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the images, and check where `every_n_train_steps` says so."""
        self.images_seen += batch_size(batch) * trainer.world_size
        n, first = self.every_n_train_steps, not self.history and not self._failures
        if n is not None and (first or (trainer.fit_loop.total_batch_idx + 1) % n == 0):
            self._check(trainer, pl_module)
        self._let_samples_go(trainer)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Check at the end of a validation run."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._check_by_epoch(trainer, pl_module)
        self._let_samples_go(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Check at the end of an epoch where nothing is validated."""
        if not trainer.enable_validation:
            self._check_by_epoch(trainer, pl_module)
        self._let_samples_go(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Free what a check that was cut short left."""
        shared_samples.forget(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Print the summary."""
        self._now = WHOLE_RUN
        if not self.history and not self._failures:
            warn(f"{type(self).__name__}: training ended before the first check. Check more often, or train longer.")
        if trainer.is_global_zero and self.history:
            self._show(lambda: print(self.summary()))
            if self._page is not None:
                print(f"Report: {self._page}")

    def _check_by_epoch(self, trainer: Any, pl_module: Any) -> None:
        epoch, last = trainer.current_epoch, self._last_epoch
        too_soon = last is not None and 0 < epoch - last < self.every_n_epochs  # epoch < last in a fit from the start
        if self.every_n_train_steps is None and not too_soon:
            self._last_epoch = epoch
            self._check(trainer, pl_module)

    def _warn_of_rare_checks(self, trainer: Any) -> None:
        for callback in trainer.early_stopping_callbacks:
            rare = self.every_n_epochs > 1 or self.every_n_train_steps is not None
            if rare and str(callback.monitor).startswith(f"{self.prefix}/"):
                self.note(
                    f"EarlyStopping monitors {callback.monitor!r}, which {type(self).__name__} does not measure in "
                    "every epoch. It counts the old value as no improvement: raise its `patience` or set "
                    "every_n_epochs=1."
                )

    # one check

    def _check(self, trainer: Any, pl_module: Any) -> None:
        if self._failures >= MAX_FAILURES:
            return
        step = _logged_step(trainer, pl_module)
        self._now = {"epoch": self._epoch(trainer), "step": step}
        # the other way round, what a sampler does to the averaged model's buffers would stay
        with chosen_weights(self.weights, trainer, pl_module, self) as used, left_alone(pl_module):
            try:
                samples, values = self._values(trainer, pl_module)
            except Exception as error:  # on every process
                if self.on_error == "raise":
                    raise
                self._failed(trainer, error, step)
                return
        self._failures, self._not_finite = 0, False
        if trainer.is_global_zero and not self._described:
            self._described = True
            self._show(lambda: descriptions.log_descriptions(trainer.loggers, self.prefix, self.about, values))
        self._log(trainer, pl_module, values, step)
        self.history.append({"epoch": self._epoch(trainer), "step": step, **values})
        if trainer.is_global_zero:
            with left_alone(pl_module):
                self._show(lambda: self._write(trainer, pl_module, used))
                self._show(lambda: self.after_check(trainer))
                self._show(lambda: self._draw(trainer, lambda: self.figures(samples)))
                self._show(self._report)

    def _values(self, trainer: Any, pl_module: Any) -> tuple[Tensor, dict[str, float]]:
        """Return this process's samples and the values of all; where one process fails, every one raises."""
        start = time.perf_counter()
        samples = in_step(trainer, lambda: self._samples(trainer, pl_module))
        drawn = time.perf_counter()
        seed_everything(self.seed)  # a metric that draws random numbers gives the same value for the same samples
        in_step(trainer, lambda: self.collect(samples))
        values = in_step(trainer, lambda: self.measure(trainer, samples))
        seconds = {"sampling_seconds": drawn - start, "metric_seconds": time.perf_counter() - drawn}
        return samples, values | seconds | {"images_seen": self.images_seen}

    def _epoch(self, trainer: Any) -> float:
        """Return the epoch, with its part that is over where an epoch has several checks."""
        done, n = trainer.fit_loop.epoch_loop.batch_progress.current.ready, trainer.num_training_batches
        between = self.every_n_train_steps is not None or trainer.val_check_batch < n
        return float(trainer.current_epoch + (round(done / n, 3) if between and isinstance(n, int) else 0))

    def _failed(self, trainer: Any, error: Exception, step: int) -> None:
        not_finite = trainer.strategy.reduce_boolean_decision(isinstance(error, NotFiniteError), all=False)
        why = ""
        if not isinstance(error, FailedElsewhereError):
            why = f": {type(error).__name__}: {error}"
            where = f" on process {trainer.global_rank}" if trainer.world_size > 1 else ""
            # not `warn`, which only process zero says
            warnings.warn(
                f"{type(self).__name__}: this check failed{where} and is skipped.\n{trace(error)}", stacklevel=2
            )
        if not_finite:  # a finding about the generator, which may recover: no reason to stop looking
            self._alert_not_finite(trainer, step)
        else:
            self._failures += 1
            self.keep_note(f"The check of epoch {self._now['epoch']:g} failed and was skipped{why}.")
        for callback in trainer.callbacks:
            # ModelCheckpoint and EarlyStopping raise at a key never seen, and the latter stops at what is not finite
            key = str(getattr(callback, "monitor", None))
            if key.startswith(f"{self.prefix}/"):
                trainer.callback_metrics.setdefault(key, torch.tensor(-WORST if callback.mode == "max" else WORST))
        if self._failures == MAX_FAILURES and not not_finite:
            self.note(f"{type(self).__name__}: {MAX_FAILURES} checks in a row failed, so it is switched off.")
        if trainer.is_global_zero:
            self._show(self._report)

    def _alert_not_finite(self, trainer: Any, step: int) -> None:
        first, self._not_finite = not self._not_finite, True
        if first and trainer.is_global_zero:
            title = f"{self.prefix}: NaN or infinite values"
            text = f"The generator gives NaN or infinite values at epoch {trainer.current_epoch}: they have no score."
            self.note(f"{type(self).__name__}: {text}")
            self._show(lambda: loggers.log_alert(trainer.loggers, title, text, step))

    # state

    def state_dict(self) -> dict[str, Any]:
        """Return plain Python and tensors only."""
        return {
            "history": [dict(check) for check in self.history],
            "images_seen": self.images_seen,
            "failures": self._failures,
            "last_epoch": self._last_epoch,
            "notes": [dict(note) for note in self._notes if note["epoch"] is not None],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.history = [dict(check) for check in state_dict["history"]]
        self.images_seen = state_dict["images_seen"]
        self._failures = state_dict["failures"]
        self._last_epoch = state_dict["last_epoch"]
        self._notes = [dict(note) for note in state_dict.get("notes", [])]  # older checkpoints have none


def _logged_step(trainer: Any, pl_module: Any) -> int:
    """Return the step under which Lightning logs what is logged now: batches after which an optimizer stepped."""
    stepped: int = trainer.fit_loop.epoch_loop._batches_that_stepped
    # the last batch of an epoch is counted before this hook, and taken back again where Lightning logs
    return stepped - (pl_module._current_fx_name == "on_train_epoch_end")
