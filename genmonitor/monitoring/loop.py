# SPDX-License-Identifier: Apache-2.0
"""LoopMonitor: evaluates in a training loop of the user's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from genmonitor._validation import check_at_least
from genmonitor.evaluation.collective import Collective, current_processes
from genmonitor.evaluation.data.images import ImageKey
from genmonitor.evaluation.data.reference import ReferenceImages
from genmonitor.evaluation.data.streams import streams_taken
from genmonitor.evaluation.encoders.frozen import check_not_shared
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.evaluation.pixel_clusters import RegionEvaluator
from genmonitor.evaluation.progress import Progress, no_progress, terminal_progress
from genmonitor.evaluation.results import Evaluation
from genmonitor.evaluation.sampling.model import SampledModel
from genmonitor.evaluation.sampling.sampler import Sampler
from genmonitor.evaluation.training_state.isolation import preserve_training_state
from genmonitor.evaluation.training_state.proof import prove_unchanged
from genmonitor.evaluation.training_state.sharding import kept_sharded
from genmonitor.loggers.facade import as_logger
from genmonitor.loggers.publisher import finish_evaluations
from genmonitor.monitoring.base import Moment, Monitor
from genmonitor.monitoring.failures import OnError

PROOFS = 2
"""How often a run proves that nothing of the training moved: when it is fitted, and at the first evaluation."""


class LoopMonitor(Monitor):
    """Evaluates a generator in a training loop without a Trainer, and leaves the training as it would have been.

    It finds what the monitors of `genmonitor.callbacks` find, to the last bit, and writes the same: the folder with
    `report.html`, TensorBoard and W&B. Where torch.distributed runs, be it by torchrun, Lightning Fabric or accelerate,
    every process makes it and calls `evaluate`: each draws its part of the samples, and the first one writes. As one of
    the `callbacks` of a Fabric it is called by `fabric.call("evaluate", module, step=step, epoch=epoch)`. From networks
    that `fully_shard` split (FSDP2, torch 2.13 or newer) all processes draw as many batches, in step; a sampler must
    then take as many steps for any samples.

    Args:
        evaluator: what is evaluated; None for `RegionEvaluator()`, which finds regions and says which are wrong.
        sampler: how samples are drawn, as many as the evaluator wants; None for batches of 100 from seed 0.
        folder: of the run; files go into "genmonitor" in it. What an earlier run left there under the evaluator's
            prefix is removed at the first evaluation, unless this one goes on from its state.
        real_images: a Dataset, DataLoader or tensor: the training images, if `validation_images` are given too. Else
            some of these are compared with and others are not: best are images that the generator is not trained on.
        validation_images: to compare with.
        image_key: where the images are in a batch: None to look for them, else a key, an index or a callable.
        loggers: one of them or several: a `SummaryWriter`, a run of W&B, the loggers of a Fabric or the trackers of an
            Accelerator. Those of the first process count.
        evaluate_on: the device of metrics and encoders, such as "cpu" where training leaves no memory, or "cuda:1";
            samples are moved there. None for the device that trains, or the CPU where that is MPS, which has no
            float64.
        on_alert: called on rank zero with the text of each alert.
        on_error: "warn" skips an evaluation that fails, and switches the monitor off after 3 in a row; "raise" lets it
            stop the run. A wrong configuration always raises, at the first evaluation or in `fit`.
        verbose: print the regions found and a line per evaluation. Warnings and alerts are given in any case.

    Attributes:
        history: a record of values, with `epoch` and `step`, for each evaluation of the run.

    Raises:
        ValueError: if the sampler draws other samples than the evaluator takes them for, or `evaluate_on` is no device.
        TypeError: if a logger is none of these.

    Example:
        >>> import tempfile
        >>> from genmonitor import PixelPartition
        >>> from genmonitor.evaluation import RegionEvaluator
        >>> evaluator = RegionEvaluator(partition=PixelPartition.grid((4, 4), rows=1, columns=2), n_samples=50)
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
        image_key: ImageKey = None,
        loggers: Any = (),
        evaluate_on: str | torch.device | None = None,
        on_alert: Callable[[str], Any] | None = None,
        on_error: OnError = "warn",
        verbose: bool = True,
    ) -> None:
        evaluator = evaluator or RegionEvaluator()
        super().__init__(
            evaluator,
            sampler or Sampler(evaluator.n_samples, evaluator.prompts),
            real_images=real_images,
            image_key=image_key,
            evaluate_on=evaluate_on,
            on_alert=on_alert,
            on_error=on_error,
            warn=_on_rank_zero(warnings.warn),
            inform=_on_rank_zero(print),
            verbose=verbose,
        )
        if real_images is None:
            raise ValueError("Expected `real_images`, a Dataset, DataLoader or tensor, but got None.")
        self.folder, self.validation_images = Path(folder), validation_images
        given = loggers if isinstance(loggers, (list, tuple)) else [loggers]
        self.loggers = [as_logger(logger) for logger in given if current_processes().rank == 0]
        self._fitted = False
        self._proved = 0

    def fit(
        self, sample: nn.Module | Callable[[Any], Tensor], module: nn.Module | Sequence[nn.Module] | None = None
    ) -> None:
        """Fit the evaluator; the first `evaluate` does it otherwise.

        Called before training, it refuses what cannot work before time was spent, and takes the untrained model's
        samples where an evaluator compares with the start. Its arguments are those of `evaluate`; every process calls
        it.

        Raises:
            ValueError: if the configuration cannot work.
        """
        model = SampledModel.of(sample, module)
        with self._isolated(model):
            self._fit(model, current_processes())

    def evaluate(
        self,
        sample: nn.Module | Callable[[Any], Tensor],
        module: nn.Module | Sequence[nn.Module] | None = None,
        *,
        step: int,
        epoch: float,
    ) -> Evaluation | None:
        """Draw samples, evaluate them and publish what was found; every process calls it.

        Args:
            sample: a function from n to n images [n, C, H, W], or, for an evaluator with prompts, from prompts, a list
                of strings or labels as int64 [n], to an image for each; or a Module with a method `sample(n)` or
                `sample_prompts(prompts)`. With several processes draw from the module inside of
                DistributedDataParallel, which may wait for the others in each forward pass.
            module: the networks that a function draws with, one or several: they are in eval mode and without gradients
                meanwhile, and their modes, buffers and gradients are put back. Not needed for a Module or its method.
            step: the optimizer's, at least that of the evaluation before.
            epoch: with its part that is over, if you like.

        Returns:
            What was found; None where it failed and was skipped, or where the monitor is switched off.

        Raises:
            ValueError: if the configuration cannot work.
        """
        moment = self._moment(step, epoch)
        if self.failures.switched_off:
            return None
        model, comm = SampledModel.of(sample, module), current_processes()
        with self._isolated(model):
            if not self._fitted:
                self._fit(model, comm)
            found = self._run_evaluation(model, comm, moment, _progress(comm))
            if found is not None and comm.rank == 0:
                self._publish(found, lambda: _circumstances(model, comm))
            if comm.rank == 0:
                finish_evaluations([self.publisher])
        return None if found is None else found.evaluation

    def summary(self) -> str:
        """Return a table of what the run found, and where the report is."""
        page = self.publisher.page
        return self.evaluator.summary(self.history) + ("" if page is None else f"\nReport: {page}")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state; what is fixed for a run stays fixed when it is resumed."""
        self._fitted = False
        super().load_state_dict(state_dict)

    def _fit(self, model: SampledModel, comm: Collective) -> None:
        for name, network in self.evaluator.networks().items():
            check_not_shared(name, network, model.module)
        self.failures.try_again()
        self.publisher.start(self.folder, self.loggers)
        self._fit_evaluator(self._real(comm), model, comm, _progress(comm))
        if comm.rank == 0:
            self.publisher.publish_fit(self.evaluator, self.history)
        self._fitted, self._resumed = True, False

    def _real(self, comm: Collective) -> ReferenceImages:
        with_index = streams_taken(self.image_key, comm, _progress(comm))
        if self.validation_images is None:
            return ReferenceImages(given=self.real_images, image_key=self.image_key, with_index=with_index)
        training, validation = self.real_images, self.validation_images
        return ReferenceImages(
            training=training, validation=validation, image_key=self.image_key, with_index=with_index
        )

    @contextmanager
    def _isolated(self, model: SampledModel) -> Iterator[None]:
        """Have the training left alone inside the block, and prove it the first times."""
        self._proved += 1
        proof = prove_unchanged(model.module, self.publisher.notes.add) if self._proved <= PROOFS else nullcontext()
        with kept_sharded(model.module), proof, preserve_training_state(model.module):
            yield

    def _moment(self, step: int, epoch: float) -> Moment:
        check_at_least("step", step, 0)
        if self.history and step < self.history[-1]["step"]:
            raise ValueError(
                f"Expected `step` to be at least that of the evaluation before, {self.history[-1]['step']}, but got "
                f"{step}. Give the number of optimizer steps so far, over the whole run."
            )
        return Moment(float(epoch), step, int(epoch))


def _progress(comm: Collective) -> Progress:
    return terminal_progress if comm.rank == 0 else no_progress


def _on_rank_zero(say: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: say(text) if current_processes().rank == 0 else None


def _circumstances(model: SampledModel, comm: Collective) -> dict[str, Any]:
    return {"device": model.device.type, "processes": comm.world_size, "threads": torch.get_num_threads()}
