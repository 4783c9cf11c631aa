# SPDX-License-Identifier: Apache-2.0
"""LoopMonitor: evaluates in a training loop of the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from inspect import signature
from operator import index
from pathlib import Path
from typing import Any, SupportsFloat, Unpack

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from genmonitor._io import Progress, no_progress, terminal_progress, warn
from genmonitor._validation import check_at_least, check_bool, check_positive
from genmonitor.distributed import (
    Collective,
    MissingProcessError,
    SingleProcess,
    current_processes,
    wait_for_every_process,
)
from genmonitor.encoders.frozen import check_not_shared
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.evaluation.pixel_clusters import RegionEvaluator
from genmonitor.evaluation.results import Evaluation
from genmonitor.images.image_set import ImageSet
from genmonitor.images.model import SampledModel
from genmonitor.images.sampler import Sampler
from genmonitor.images.streams import is_stream, streams_taken
from genmonitor.loggers.facade import as_logger
from genmonitor.loggers.publisher import finish_evaluations
from genmonitor.monitoring.averages import averaged_weights
from genmonitor.monitoring.base import Moment, Monitor
from genmonitor.monitoring.options import EvaluationOptions, check_names
from genmonitor.training_state.data import preserve_data
from genmonitor.training_state.isolation import preserve_training_state
from genmonitor.training_state.proof import Trained, prove_unchanged
from genmonitor.training_state.sharding import kept_sharded, sharded_parts


class LoopMonitor(Monitor):
    """Evaluates a generator in a training loop without a Trainer, and leaves the training as it would have been.

    It finds what the monitors of `genmonitor.callbacks` find, to the last bit, and writes the same: the folder with
    `report.html`, TensorBoard and W&B. Where torch.distributed runs, be it by torchrun, Lightning Fabric or accelerate,
    every process makes it and calls `evaluate`: each draws its part of the samples, and the first one writes. As one of
    the `callbacks` of a Fabric it is called by `fabric.call("evaluate", module, step=step, epoch=epoch)`. From networks
    that `fully_shard` split (FSDP2, torch 2.13 or newer) all processes draw as many batches, in step; a sampler must
    then take as many steps for any samples.

    Args:
        evaluator: What is evaluated; None for `RegionEvaluator()`, which finds regions and says which are wrong.
        sampler: How samples are drawn, as many as the evaluator wants; None for batches of 100 from seed 0.
        folder: Folder of the run; files go into "genmonitor" in it. What an earlier run left there under the
            evaluator's prefix is removed at the first evaluation, unless this one goes on from its state.
        real_images: A Dataset, DataLoader or tensor: the training images, if `validation_images` are given too. Else
            some of these are compared with and others are not: best are images that the generator is not trained on.
        validation_images: To compare with.
        optimizers: Optimizers and learning-rate schedulers of the training, one or several: they are put back after
            each evaluation, as the networks are.
        distributed: False where one process alone makes the monitor and calls it, while others go on training.
        timeout: Seconds that a process waits for the others to call `fit` or `evaluate` before it raises an error.
        loggers: One of them or several: a `SummaryWriter`, a run of W&B, the loggers of a Fabric or the trackers of an
            Accelerator. Those of the first process count.
        **options: Those that every monitor takes, by keyword: see `EvaluationOptions`.

    Attributes:
        history: A record of values, with `epoch` and `step`, for each evaluation of the run.

    Raises:
        ValueError: If the sampler draws other samples than the evaluator takes them for, `evaluate_on` is not the CPU,
            or there is no image in the real ones.
        TypeError: If a logger is none of these.

    Example:
        >>> import tempfile
        >>> from genmonitor import PixelPartition
        >>> from genmonitor.evaluation import RegionEvaluator, RegionSettings
        >>> halves = PixelPartition.grid((4, 4), rows=1, columns=2)
        >>> evaluator = RegionEvaluator(RegionSettings(partition=halves, n_samples=50))
        >>> module = nn.Linear(3, 16)
        >>> def sample(n):
        ...     return module(torch.randn(n, 3)).sigmoid().view(n, 1, 4, 4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     monitor = LoopMonitor(evaluator, folder=folder, real_images=torch.rand(300, 1, 4, 4))
        ...     evaluation = monitor.evaluate(sample, module, step=0, epoch=0)
        LoopMonitor: 2 clusters...
        >>> evaluation.values["image"] < 1
        True
    """

    def __init__(
        self,
        evaluator: Evaluator[Any] | None = None,
        sampler: Sampler | None = None,
        *,
        folder: str | Path,
        real_images: Any,
        validation_images: Any = None,
        optimizers: Any = (),
        loggers: Any = (),
        distributed: bool = True,
        timeout: float = 60.0,
        **options: Unpack[EvaluationOptions],
    ) -> None:
        own = signature(LoopMonitor).parameters.keys() - {"options"}
        check_names(type(self).__name__, options, [*EvaluationOptions.__annotations__, *own])
        evaluator = evaluator or RegionEvaluator()
        sampler = sampler or Sampler(evaluator.n_samples, evaluator.prompts)
        self.distributed, self.timeout = check_bool("distributed", distributed), check_positive("timeout", timeout)
        says: dict[str, Any] = {"warn": _on_rank_zero(warn, distributed), "inform": _on_rank_zero(print, distributed)}
        super().__init__(evaluator, sampler, real_images=real_images, **says, **options)
        if real_images is None:
            raise ValueError("Expected `real_images`, a Dataset, DataLoader or tensor, but got None.")
        for name, data in (("`real_images`", real_images), ("`validation_images`", validation_images)):
            if data is not None and not is_stream(data):
                _check_images(ImageSet(data, self.image_key, name))
        self.folder, self.validation_images = Path(folder).absolute(), validation_images
        self.optimizers = _optimizers(optimizers)
        given = loggers if isinstance(loggers, (list, tuple)) else [loggers]
        self.loggers = [as_logger(logger) for logger in given if self._processes().rank == 0]
        self._fitted = False

    def fit(
        self, sample: nn.Module | Callable[[Any], Tensor], module: nn.Module | Sequence[nn.Module] | None = None
    ) -> None:
        """Fit the evaluator; the first `evaluate` does it otherwise.

        Called before training, it refuses what cannot work before time was spent, and takes the untrained model's
        samples where an evaluator compares with the start. Its arguments are those of `evaluate`; every process calls
        it.

        Raises:
            ValueError: If the configuration cannot work.
            RuntimeError: If not every process calls it within `timeout` seconds.
        """
        model = SampledModel.of(sample, module)
        comm = self._processes(model)
        self._wait_for_all("fit")
        with comm.only_these(), self._isolated(model, comm), preserve_training_state(model.module):
            self._fit(model, comm)

    def evaluate(
        self,
        sample: nn.Module | Callable[[Any], Tensor],
        module: nn.Module | Sequence[nn.Module] | None = None,
        *,
        step: int,
        epoch: float,
        ema: Any = None,
    ) -> Evaluation | None:
        """Draw samples, evaluate them and publish what was found; every process calls it.

        Args:
            sample: A function from n to n images [n, C, H, W]; for an evaluator with prompts one from prompts, a list
                of strings or labels as int64 [n], to an image for each. Or a Module with a method `sample(n)` or
                `sample_prompts(prompts)`. With several processes draw from the module inside of
                DistributedDataParallel, which may wait for the others in each forward pass.
            module: The networks that a function draws with, one or several: they are in eval mode and without gradients
                meanwhile, and their modes, buffers and gradients are put back. Not needed for a Module or its method.
            step: The optimizer's, at least that of the evaluation before. Once fitted, an evaluation at a smaller one
                is skipped, as `on_error` says.
            epoch: Finite, with its part that is over, if you like.
            ema: Averaged weights to draw with, kept by diffusers' `EMAModel`, ema_pytorch's `EMA`, timm's `ModelEmaV3`
                or torch's `AveragedModel`; the network's own are put back. None for its own.

        Returns:
            What was found; None where it failed and was skipped, or where the monitor is switched off.

        Raises:
            ValueError: If the configuration cannot work.
            RuntimeError: If not every process makes the first evaluation within `timeout` seconds; a later one is
                skipped, as `on_error` says.
        """
        self.is_best = False
        try:
            moment = self._moment(step, epoch)
            if self.failures.switched_off:
                return None
            self._wait_for_all("evaluate", moment.step)
        except (TypeError, ValueError, MissingProcessError) as error:
            if self.failures.raises or not self._fitted:
                raise
            self.publisher.notes.add(f"an evaluation is skipped. {error}")
            return None
        model = SampledModel.of(sample, module)
        comm = self._processes(model)
        with (
            comm.only_these(),
            self._isolated(model, comm, ema),
            averaged_weights(ema, model.module, self.publisher.notes.add_once),
            preserve_training_state(model.module),
        ):
            if not self._fitted:
                self._fit(model, comm)
            found = self._run_evaluation(model, comm, moment, _progress(comm))
            if found is not None and comm.rank == 0:
                at = {"device": model.device.type, "processes": comm.world_size, "threads": torch.get_num_threads()}
                self._publish(found, lambda: at)
            if comm.rank == 0:
                finish_evaluations([self.publisher])
        return None if found is None else found.evaluation

    def summary(self) -> str:
        """Return a table of what the run found, and where the report is."""
        page = self.publisher.page
        return super().summary() + ("" if page is None else f"\nReport: {page}")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state; what is fixed for a run stays fixed when it is resumed."""
        self._fitted = False
        super().load_state_dict(state_dict)

    def _processes(self, model: SampledModel | None = None) -> Collective:
        if self.distributed:
            return current_processes()
        if model is not None and sharded_parts(model.module):
            raise ValueError(
                "Expected a whole model with `distributed=False`, but got one that is split over the processes, which "
                "all have to draw from it. Leave `distributed` out and call the monitor on every process."
            )
        return SingleProcess()

    def _wait_for_all(self, call: str, step: int = 0) -> None:
        """Let no process wait for hours in the first collective of a call that others do not make."""
        if self._processes().world_size > 1:
            wait_for_every_process(call, f"{self.prefix}/{call}/{step}", self.timeout)

    def _fit(self, model: SampledModel, comm: Collective) -> None:
        for name, network in self.evaluator.networks().items():
            check_not_shared(name, network, model.module)
        self.failures.try_again()
        self.publisher.start(self.folder, self.loggers)
        self._fit_evaluator(self._real(comm), model, comm, _progress(comm))
        if comm.rank == 0:
            self.publisher.publish_fit(self.evaluator, self.values, self.history)
        self._fitted, self._resumed = True, False

    def _real(self, comm: Collective) -> ImageSet:
        with_index = streams_taken(self.image_key, comm, _progress(comm))
        if self.validation_images is None:
            return ImageSet(self.real_images, self.image_key, with_index=with_index)
        return ImageSet.of_training(self.real_images, self.validation_images, self.image_key, with_index=with_index)

    @contextmanager
    def _isolated(self, model: SampledModel, comm: Collective, ema: Any = None) -> Iterator[None]:
        """Have the training left alone inside the block, with its data, and report what had to be put back."""
        module, note = model.module, self.publisher.notes.add
        step = f" at step {self.history[-1]['step']} or before" if self.history else ""
        trained = Trained(
            module,
            optimizers=[x for x in self.optimizers if isinstance(x, Optimizer)],
            others={f"scheduler {i}": x for i, x in enumerate(self.optimizers)} | {"`ema`": ema},
            averaged=ema if isinstance(ema, nn.Module) else None,
            way_back=lambda: f"Go back to a checkpoint saved{step}.",
        )
        data = {"`real_images`": self.real_images, "`validation_images`": self.validation_images}
        with kept_sharded(module), prove_unchanged(trained, note, comm.gather), preserve_data(data, note):
            yield

    def _moment(self, step: int, epoch: float) -> Moment:
        with suppress(TypeError):  # what is no whole number is refused below
            step = step if isinstance(step, bool) else index(step)
        check_at_least("step", step, 0)
        if self.history and step < self.history[-1]["step"]:
            raise ValueError(
                f"Expected `step` to be at least that of the previous evaluation, {self.history[-1]['step']}, but got "
                f"{step}. Give the number of optimizer steps so far, over the whole run."
            )
        if not isinstance(epoch, SupportsFloat) or not math.isfinite(epoch):
            raise ValueError(f"Expected `epoch` to be a finite number, but got {epoch!r}.")
        return Moment(float(epoch), step, int(epoch))


def _optimizers(given: Any) -> list[Any]:
    """Return optimizers and schedulers as a list.

    Raises:
        TypeError: If one has no state that could be put back.
    """
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    for one in several:
        if not callable(getattr(one, "state_dict", None)):
            raise TypeError(
                f"Expected `optimizers` as optimizers and learning-rate schedulers, but got {type(one).__name__}. Give "
                "one of them or a list, or leave it out."
            )
    return several


def _check_images(source: ImageSet) -> None:
    """Refuse data without images before time was spent."""
    try:
        source.read([0])
    except ValueError as error:
        raise ValueError(f"Expected {source.name} to hold images. {error}") from error


def _progress(comm: Collective) -> Progress:
    return terminal_progress if comm.rank == 0 else no_progress


def _on_rank_zero(say: Callable[[str], Any], distributed: bool) -> Callable[[str], Any]:
    return lambda text: say(text) if not distributed or current_processes().rank == 0 else None
