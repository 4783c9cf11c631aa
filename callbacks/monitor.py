# SPDX-License-Identifier: Apache-2.0
"""What all monitors share: when to check, how to leave the run alone, what to do about errors, state and logging."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

try:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.utilities import rank_zero_info as tell
    from lightning.pytorch.utilities import rank_zero_warn as warn
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment]
    from pytorch_lightning.utilities import rank_zero_info as tell
    from pytorch_lightning.utilities import rank_zero_warn as warn

from genmonitor import checks
from genmonitor.callbacks import loggers, shared_samples
from genmonitor.callbacks.data import ImageKey, batch_size
from genmonitor.callbacks.guard import left_alone
from genmonitor.callbacks.manifest import circumstances, run_folder, write_about, write_manifest
from genmonitor.callbacks.prompts import PromptedSampleFn, Prompts, prompted_sampler
from genmonitor.callbacks.sampling import SampleFn, draw, sampler, seed_everything
from genmonitor.callbacks.weights import check_weights, check_whole, chosen_weights
from genmonitor.report import write_report

__all__ = ["Callback", "GenerativeMonitor", "tell", "warn"]

MAX_FAILURES = 3
PROBE = 16
WORST = 1e9


class GenerativeMonitor(Callback):
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

    prompts: Prompts | None = None
    prefix = "monitor"
    figures_to_keep: tuple[str, ...] = ("samples",)
    about: Mapping[str, str] = {}
    """What each value says, by its name; a name that ends in … stands for all that begin so."""

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
        self.n_samples = checks.at_least("n_samples", n_samples, 2)
        self.every_n_epochs = checks.at_least("every_n_epochs", every_n_epochs, 1)
        if every_n_train_steps is not None:
            checks.at_least("every_n_train_steps", every_n_train_steps, 1)
        self.every_n_train_steps = every_n_train_steps
        if sample_fn is not None and not callable(sample_fn):
            raise TypeError(f"Expected `sample_fn` to be callable, but got {type(sample_fn).__name__}.")
        if prompts is not None:  # a subclass may have set them before
            self.prompts = Prompts(prompts)
        self.sample_fn = sample_fn
        self.sample_batch_size = checks.at_least("sample_batch_size", sample_batch_size, 1)
        self.real_images = real_images
        self.image_key = image_key
        self.seed = checks.at_least("seed", seed, 0)
        self.weights = checks.one_of("weights", weights, ("auto", "raw", "averaged"))
        self.on_error = checks.one_of("on_error", on_error, ("warn", "raise"))
        self.history: list[dict[str, float]] = []
        self.images_seen = 0
        self._failures = 0
        self._not_finite = self._found_not_finite = False
        self._last_epoch: int | None = None
        self._folder = Path()
        self._described = False
        self._sample_shape: tuple[int, ...] = ()
        self._ranges: list[tuple[int, int]] = []

    # what a subclass says

    def prepare(self, trainer: Any, pl_module: Any) -> None:
        """Fix whatever stays fixed for the run; raise ValueError for a wrong configuration. Every process calls it."""
        raise NotImplementedError

    def samples_of(self, pl_module: Any) -> Callable[[list[int]], Tensor]:
        """Return the function from indices of the global set to images; raise ValueError where there is no way."""
        prompts = self.prompts
        if prompts is None:
            sample = sampler(self.sample_fn, pl_module)
            return lambda indices: sample(len(indices))
        of_prompts = prompted_sampler(self.sample_fn, pl_module)
        return lambda indices: of_prompts(prompts.of(indices, pl_module.device))

    def collect(self, samples: Tensor) -> bool:
        """Take in this process's share of the samples. It may fail on one process alone, so it talks to no other."""
        return True

    def measure(self, trainer: Any, samples: Tensor) -> dict[str, float]:
        """Return the values of one check. Every process calls it, once `collect` went well on all of them."""
        raise NotImplementedError

    def charts(self) -> Mapping[str, Sequence[str]]:
        """Return which values share a chart, by its title. Rank zero calls it, once prepared."""
        return {}

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

    def facts(self) -> dict[str, Any]:
        """Return what is needed to measure the same again, for the manifest."""
        return {}

    def only_in_code(self) -> list[str]:
        """Name the arguments given that no manifest can hold: `genmonitor replay` needs them from the user's code."""
        given = {"sample_fn": self.sample_fn, "real_images": self.real_images}
        given |= {"image_key": self.image_key if callable(self.image_key) else None}
        return [name for name, value in given.items() if value is not None]

    # when

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Prepare, before the first training step."""
        self.samples_of(pl_module)
        check_weights(self.weights, trainer)
        check_whole(trainer)
        if [monitor.prefix for monitor in _monitors(trainer)].count(self.prefix) > 1:
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
        if not self.history and not self._failures:
            warn(f"{type(self).__name__}: training ended before the first check. Check more often, or train longer.")
        if trainer.is_global_zero and self.history:
            self._show(lambda: print(self.summary()))
            print(f"Report: {self._folder / 'report.html'}")

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
                warn(
                    f"EarlyStopping monitors {callback.monitor!r}, which {type(self).__name__} does not measure in "
                    "every epoch. It counts the old value as no improvement: raise its `patience` or set "
                    "every_n_epochs=1."
                )

    # one check

    def _check(self, trainer: Any, pl_module: Any) -> None:
        if self._failures >= MAX_FAILURES:
            return
        # the other way round, what a sampler does to the averaged model's buffers would stay
        with chosen_weights(self.weights, trainer, pl_module, self) as used, left_alone(pl_module):
            start = time.perf_counter()
            samples = self._together(trainer, lambda: self._samples(trainer, pl_module))
            drawn = time.perf_counter()
            seed_everything(self.seed)  # a metric that draws random numbers gives the same value for the same samples
            collected = samples is not None and self._together(trainer, lambda: self.collect(samples))
            values = self._together(trainer, lambda: self.measure(trainer, samples)) if collected else None
            measured = time.perf_counter()
        if values is None:
            self._failed(trainer, pl_module)
            return
        self._failures, self._not_finite = 0, False
        values |= {"sampling_seconds": drawn - start, "metric_seconds": measured - drawn}
        values |= {"images_seen": self.images_seen}
        step = _logged_step(trainer, pl_module)
        if trainer.is_global_zero and not self._described:
            self._described = True
            loggers.log_descriptions(trainer.loggers, self.prefix, self.about, values)
        self._log(trainer, pl_module, values, step)
        self.history.append({"epoch": self._epoch(trainer), "step": step, **values})
        if trainer.is_global_zero:
            with left_alone(pl_module):
                self._show(lambda: self._write(trainer, pl_module, used))
                self._show(lambda: self.after_check(trainer))
                self._show(lambda: self._draw(trainer, lambda: self.figures(samples)))
                self._show(lambda: write_report(self._folder))

    def _epoch(self, trainer: Any) -> float:
        """Return the epoch, with its part that is over where an epoch has several checks."""
        done, n = trainer.fit_loop.epoch_loop.batch_progress.current.ready, trainer.num_training_batches
        between = self.every_n_train_steps is not None or trainer.val_check_batch < n
        return float(trainer.current_epoch + (round(done / n, 3) if between and isinstance(n, int) else 0))

    def _together(self, trainer: Any, work: Callable[[], Any]) -> Any:
        """Do this process's part; return None on every process if it failed on any."""
        result, error = None, None
        try:
            result = work()
        except Exception as caught:
            if self.on_error == "raise":
                raise
            error = caught
            where = f" on process {trainer.global_rank}" if trainer.world_size > 1 else ""
            # not `warn`, which only process zero says
            warnings.warn(
                f"{type(self).__name__}: this check failed{where} and is skipped.\n{_trace(error)}", stacklevel=2
            )
        decide = trainer.strategy.reduce_boolean_decision
        if decide(error is None, all=True):
            return result
        self._found_not_finite = decide(isinstance(error, checks.NotFiniteError), all=False)
        return None

    def _failed(self, trainer: Any, pl_module: Any) -> None:
        if self._found_not_finite:  # a finding about the generator, which may recover: no reason to stop looking
            self._alert_not_finite(trainer, pl_module)
        else:
            self._failures += 1
        for callback in trainer.callbacks:
            # ModelCheckpoint and EarlyStopping raise at a key never seen, and the latter stops at what is not finite
            key = str(getattr(callback, "monitor", None))
            if key.startswith(f"{self.prefix}/"):
                trainer.callback_metrics.setdefault(key, torch.tensor(-WORST if callback.mode == "max" else WORST))
        if self._failures == MAX_FAILURES and not self._found_not_finite:
            warn(f"{type(self).__name__}: {MAX_FAILURES} checks in a row failed, so it is switched off.")

    def _samples(self, trainer: Any, pl_module: Any) -> Tensor:
        """Return this process's share of the samples, drawn by itself or by a monitor before it in this check."""
        indices = list(self.share(trainer))
        self._ranges = [(0, len(indices))]
        if len(_monitors(trainer)) < 2 or not indices:
            return self.draw(trainer, pl_module, indices)
        request = (*self._request(), shared_samples.fingerprint(pl_module))
        draw_missing = partial(self.draw, trainer, pl_module)
        samples = shared_samples.draw_once(trainer, request, indices, draw_missing)
        self._ranges = shared_samples.ranges(trainer, request)
        self._sample_shape = tuple(samples.shape[1:])
        return samples

    def _request(self) -> tuple[Hashable, ...]:
        """Return what a sample depends on beside its index and the weights."""
        way = self.sample_fn if isinstance(self.sample_fn, Hashable) else id(self.sample_fn)
        prompts = None if self.prompts is None else tuple(self.prompts.values)
        return type(self).samples_of, type(self).draw, way, prompts, self.seed, self.sample_batch_size

    def _let_samples_go(self, trainer: Any) -> None:
        if _monitors(trainer)[-1] is self:
            shared_samples.forget(trainer)

    def _alert_not_finite(self, trainer: Any, pl_module: Any) -> None:
        first, self._not_finite = not self._not_finite, True
        if first and trainer.is_global_zero:
            title = f"{self.prefix}: NaN or infinite values"
            text = f"The generator gives NaN or infinite values at epoch {trainer.current_epoch}: they have no score."
            warn(f"{type(self).__name__}: {text}")
            step = _logged_step(trainer, pl_module)
            self._show(lambda: loggers.log_alert(trainer.loggers, title, text, step))

    def draw(self, trainer: Any, pl_module: Any, indices: Iterable[int]) -> Tensor:
        """Generate the samples of these indices of the one global set, [len(indices), C, H, W]."""
        indices = list(indices)
        sample = self.samples_of(pl_module)
        size = self.sample_batch_size
        batches = [indices[i : i + size] for i in range(0, len(indices), size)]
        if not batches:
            return torch.empty(0, *self._sample_shape, device=pl_module.device)
        with trainer.precision_plugin.forward_context():
            samples = draw(sample, self.progress(trainer, batches, "sampling"), self.seed)
        samples = samples.to(pl_module.device)  # where the processes talk to each other
        self._sample_shape = tuple(samples.shape[1:])
        return samples

    def share(self, trainer: Any, n: int | None = None) -> range:
        """Return which indices of a global set of n are this process's: consecutive, in the order of the processes."""
        n, rank, world = n or self.n_samples, trainer.global_rank, trainer.world_size
        return range(n * rank // world, n * (rank + 1) // world)

    def on_rank_zero(self, trainer: Any, work: Callable[[], Any]) -> Any:
        """Do local work once and give its result, or its error, to every process."""
        outcome: Any = None
        if trainer.is_global_zero:
            try:
                outcome = work()
            except Exception as error:
                outcome = error
        outcome = trainer.strategy.broadcast(outcome, src=0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def progress(self, trainer: Any, over: Iterable[Any], doing: str) -> Iterator[Any]:
        """Show a bar that names itself while going over something, where the Trainer shows one."""
        shown = trainer.is_global_zero and trainer.progress_bar_callback is not None
        return iter(tqdm(over, desc=f"{type(self).__name__}: {doing}", leave=False, disable=not shown))

    # where it shows

    def _log(self, trainer: Any, pl_module: Any, values: dict[str, float], step: int) -> None:
        named = {f"{self.prefix}/{name}": float(value) for name, value in values.items()}
        if self.every_n_train_steps is None:
            pl_module.log_dict(named, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)
            return
        # pl_module.log would keep only the values that fall on a multiple of log_every_n_steps
        pl_module.log_dict(named, on_step=True, on_epoch=False, logger=False, batch_size=1, sync_dist=True)
        if trainer.is_global_zero:
            loggers.log_scalars(trainer.loggers, named | {"epoch": trainer.current_epoch}, step)

    def _show(self, part: Callable[[], Any]) -> None:
        """Put figures, the manifest or words where a person looks; what fails here is told and nothing more."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            part()
        except Exception as error:
            if self.on_error == "raise":
                raise
            warn(f"{type(self).__name__}: could not show this check.\n{_trace(error)}")

    def _draw(self, trainer: Any, draw_figures: Callable[[], dict[str, Figure]]) -> None:
        step = int(self.history[-1]["step"]) if self.history else 0
        for name, figure in draw_figures().items():
            epoch = trainer.current_epoch if name in self.figures_to_keep else None
            loggers.log_figures(trainer.loggers, {f"{self.prefix}/{name}": figure}, step, self._folder, epoch)

    def _lay_out(self, trainer: Any) -> None:
        charts = self.charts()
        keys = {title: [f"{self.prefix}/{name}" for name in names] for title, names in charts.items()}
        loggers.log_layout(trainer.loggers, self.prefix, keys)
        loggers.log_about(trainer.loggers, self.prefix, self.about)
        write_about(self._folder / f"{self.prefix}_about.json", charts, self.about)
        for name in loggers.without_figures(trainer.loggers):
            tell(f"{name} takes no figures: {type(self).__name__} leaves them, and report.html, in {self._folder}.")

    def _write(self, trainer: Any, pl_module: Any, used: str) -> None:
        path = self._folder / f"{self.prefix}_check_{len(self.history):05d}.json"
        write_manifest(path, self._manifest(used) | circumstances(trainer, pl_module))

    def _manifest(self, used: str) -> dict[str, Any]:
        return {
            "monitor": type(self).__name__,
            "check": self.history[-1],
            "weights": used,
            "seed": self.seed,
            "n_samples": self.n_samples,
            "sample_batch_size": self.sample_batch_size,
            "drawn": self._ranges,
            "prompts": None if self.prompts is None else self.prompts.values,
            "image_key": None if callable(self.image_key) else self.image_key,
            "only_in_code": self.only_in_code(),
            **self.facts(),
        }

    # state

    def state_dict(self) -> dict[str, Any]:
        """Return plain Python and tensors only."""
        return {
            "history": [dict(check) for check in self.history],
            "images_seen": self.images_seen,
            "failures": self._failures,
            "last_epoch": self._last_epoch,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.history = [dict(check) for check in state_dict["history"]]
        self.images_seen = state_dict["images_seen"]
        self._failures = state_dict["failures"]
        self._last_epoch = state_dict["last_epoch"]


def _monitors(trainer: Any) -> list[GenerativeMonitor]:
    return [callback for callback in trainer.callbacks if isinstance(callback, GenerativeMonitor)]


def _logged_step(trainer: Any, pl_module: Any) -> int:
    """Return the step under which Lightning logs what is logged now: batches after which an optimizer stepped."""
    stepped: int = trainer.fit_loop.epoch_loop._batches_that_stepped
    # the last batch of an epoch is counted before this hook, and taken back again where Lightning logs
    return stepped - (pl_module._current_fx_name == "on_train_epoch_end")


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error))
