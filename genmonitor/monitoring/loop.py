# SPDX-License-Identifier: Apache-2.0
"""LoopMonitor: evaluates in a user's own training loop."""

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
from genmonitor._stop import StopEvaluation, handlers_wait, stops_when
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
    """Evaluates a generator in a training loop without a Trainer, and leaves the training unchanged.

    It gives exactly the results of the monitors of `genmonitor.callbacks` and writes the same output: the folder with
    `report.html`, TensorBoard and W&B. In torch.distributed, started by torchrun, Lightning Fabric or accelerate, every
    process makes the monitor and calls `evaluate`. Each process draws its part of the samples, and the first one
    writes. As one of the `callbacks` of a Fabric it is called by `fabric.call("evaluate", module, step=step,
    epoch=epoch)`. With networks split by `fully_shard` (FSDP2, torch 2.13 or newer), all processes draw equally many
    batches in step. The model must then take the same number of forward passes for any samples.

    Args:
        evaluator: Evaluator; None for `RegionEvaluator()`, which finds regions and reports the wrong ones.
        sampler: Sampler of the number of samples that the evaluator needs; None for batches of 100 from seed 0.
        folder: Folder of the run; files go into its subfolder "genmonitor". The first evaluation removes files of an
            earlier run with the same prefix, unless this run resumes it.
        real_images: Dataset, DataLoader or tensor of training images, if `validation_images` are given. Otherwise they
            are split into images for regions and images to compare with, and are best not used for training.
        validation_images: Images to compare with.
        optimizers: Optimizers and learning-rate schedulers of the training, one or several, which are restored after
            each evaluation like the networks.
        distributed: False if a single process makes and calls the monitor while others go on training.
        timeout: Seconds that a process waits for the others to call `fit` or `evaluate` before it raises an error.
        loggers: Loggers of the first process, one or several: a `SummaryWriter`, a run of W&B, the loggers of a Fabric
            or the trackers of an Accelerator.
        **options: Those that every monitor takes, by keyword: see `EvaluationOptions`.

    Attributes:
        history: Record of values, with `epoch` and `step`, for each evaluation of the run.

    Raises:
        ValueError: If the samples of the sampler do not match the evaluator, `evaluate_on` is not the CPU, or there are
            no real images.
        TypeError: If a logger is not supported.

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
        self.optimizers = _optimizers(() if optimizers is None else optimizers)
        given = loggers if isinstance(loggers, (list, tuple)) else [loggers]
        self.loggers = [as_logger(logger) for logger in given if self._processes().rank == 0]
        self._fitted = False

    def fit(
        self, sample: nn.Module | Callable[[Any], Tensor], module: nn.Module | Sequence[nn.Module] | None = None
    ) -> None:
        """Fit the evaluator; otherwise the first `evaluate` does it.

        Before training, it detects a wrong configuration early, and draws samples of the untrained model if an
        evaluator compares with the start. The arguments are those of `evaluate`. Every process calls it.

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
        last: bool = False,
    ) -> Evaluation | None:
        """Draw samples, evaluate them and publish the results. Every process calls it.

        Args:
            sample: Function from n to n images [n, C, H, W]. With prompts, a function from a list of strings, or labels
                as int64 [n], to an image for each. Or a Module with a method `sample(n)` or `sample_prompts(prompts)`.
                With several processes draw from the module inside DistributedDataParallel, which may otherwise wait for
                the others in each forward pass.
            module: Networks that the function draws with, one or several. They are in eval mode and without gradients
                meanwhile, and their modes, buffers and gradients are restored. Not needed for a Module or its method.
            step: Number of optimizer steps, at least that of the previous evaluation. After the fit, an evaluation at a
                smaller step is skipped or raises, see `on_error`.
            epoch: Epoch, a finite number that may have a fraction.
            ema: Averaged weights to draw with: diffusers' `EMAModel`, ema_pytorch's `EMA`, timm's `ModelEmaV3` or
                torch's `AveragedModel`. The network's own weights are restored afterwards. None for its own.
            last: True for the last evaluation of the training, which always has a diagnosis of regions.

        Returns:
            The evaluation; None if it failed, was left for a signal, or the monitor is switched off.

        Raises:
            ValueError: If the configuration cannot work.
            RuntimeError: If not every process makes the first evaluation within `timeout` seconds. A later one is
                skipped or raises, see `on_error`.
        """
        self.is_best, self.evaluator.is_last = False, last
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
            handlers_wait(),
            comm.only_these(),
            self._isolated(model, comm, ema),
            averaged_weights(ema, model.module, self.publisher.notes.add_once),
            preserve_training_state(model.module),
        ):
            if not self._fitted:
                with suppress(StopEvaluation), stops_when(lambda: False, alone=comm.world_size == 1):
                    self._fit(model, comm)
            if not self._fitted:
                self.publisher.notes.add("the set-up was left for a signal; the next evaluation begins it again")
                return None
            found = self._run_evaluation(model, comm, moment, _progress(comm))
            if found is not None and comm.rank == 0:
                at = {"device": model.device.type, "processes": comm.world_size, "threads": torch.get_num_threads()}
                self._publish(found, lambda: at)
            if comm.rank == 0:
                finish_evaluations([self.publisher])
        return None if found is None else found.evaluation

    def summary(self) -> str:
        """Return a table of the results of the run, the answers of the report's first screen, and its path."""
        return self._reported()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state; the values fixed for the run stay fixed."""
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
        """Keep a process from waiting for hours in a collective if others do not make the same call."""
        if self._processes().world_size > 1:
            wait_for_every_process(call, f"{self.prefix}/{call}", self.timeout, step)

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
        """Protect the training and its data inside the block, and report changes that had to be undone."""
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
        with suppress(TypeError):  # other values are refused below
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
        TypeError: If one has no state to restore.
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
    """Refuse data without images before time is spent."""
    try:
        source.read([0])
    except ValueError as error:
        raise ValueError(f"Expected {source.name} to hold images. {error}") from error


def _progress(comm: Collective) -> Progress:
    return terminal_progress if comm.rank == 0 else no_progress


def _on_rank_zero(say: Callable[[str], Any], distributed: bool) -> Callable[[str], Any]:
    return lambda text: say(text) if not distributed or current_processes().rank == 0 else None
