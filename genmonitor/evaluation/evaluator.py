# SPDX-License-Identifier: Apache-2.0
"""Evaluator: measures a generator by its samples, in a Trainer, a loop or a command."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from genmonitor._io import Progress, no_progress
from genmonitor._validation import check_prefix
from genmonitor.distributed import Collective, SingleProcess
from genmonitor.evaluation.results import MOMENT, EvaluationT, FitReport, History, Presenter
from genmonitor.evaluation.settings import SampleSettings, Settings
from genmonitor.findings.finding import Finding
from genmonitor.findings.values import RUN_VALUES, ValueSpec
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import Prompts
from genmonitor.images.sampler import Samples
from genmonitor.linalg.chunking import free_processors
from genmonitor.training_state.rng import preserve_rng, seed_everything
from genmonitor.training_state.snapshot import Snapshot

PROBE = 16
"""Number of generated images that show shape and value range, and test encoders and metrics."""
_T = TypeVar("_T")


class NotFittedError(RuntimeError):
    """An evaluator was used before `fit`."""


def require_fitted(fitted: _T | None, name: str) -> _T:
    """Return the result of `fit`; raise NotFittedError before it."""
    if fitted is None:
        raise NotFittedError(f"Expected a fitted {name}. Call `fit` with real images first.")
    return fitted


class SettingsChangedError(ValueError):
    """A saved state was made with other settings, so its values cannot be compared with new ones.

    Attributes:
        names: Names of the settings that differ.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"Expected the settings of the saved state, but these differ: {', '.join(names)}.")
        self.names = tuple(names)


@contextmanager
def at_most_threads(count: int | None) -> Iterator[None]:
    """Compute on at most `count` threads inside the block; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else min(before, count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_same_settings(current: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Raise SettingsChangedError if a saved setting differs from the current one."""
    if changed := [name for name, value in current.items() if value != saved.get(name)]:
        raise SettingsChangedError(changed)


def agreed_signature(own: list[float] | None, comm: Collective) -> tuple[list[float] | None, tuple[str, ...]]:
    """Return process zero's signature of real images, and a note if other processes have different ones.

    Args:
        own: Signature of this process's images; None if it has none.
        comm: Processes that evaluate together.

    Raises:
        FailedElsewhereError, ValueError: If some have images and others none.
    """
    first = comm.broadcast(own)
    with comm.all_ranks_or_none():
        if (own is None) != (first is None):
            raise ValueError("Expected real images on every process or on none. Give all of them the same data.")
    note = "the processes have different real images: samples are compared with some of each process's"
    return first, (note,) if comm.any_true(own != first) else ()


@contextmanager
def reading_state(owner: str) -> Iterator[None]:
    """Refuse an incomplete saved state, naming its owner."""
    try:
        yield
    except SettingsChangedError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"Expected the state of {owner} as it was saved, but reading it fails with {type(error).__name__}: {error}."
            " It was edited, or another version of genmonitor wrote it. Resume from another checkpoint, or remove this "
            "state from it to start over."
        ) from error


class Evaluator(ABC, Generic[EvaluationT]):
    """Measures a generator by its samples: fitted once to real images, then run any number of times.

    A subclass implements `fit`, `update` and `compute`. It may declare its `values`, return `findings`, and have a
    `presenter` for tables and pictures.

    Args:
        n_samples: Number of generated images per evaluation.
        prefix: Prefix of log keys and files.
        settings: Settings on which the values depend; None for `n_samples` alone.
        objects: Arguments that a manifest cannot hold, such as networks, by name; None for one that was not given.
    """

    prompts: Prompts | None = None
    """Prompts of the samples; None if they do not matter."""
    processors: int | None = None
    """Number of processors to compute on, constant after the first use, since last digits depend on it."""
    is_last = False
    """True if the next evaluation is the last of a training, which leaves nothing out to save time."""

    def __init__(self, n_samples: int, prefix: str, settings: Settings | None = None, **objects: Any) -> None:
        self.n_samples = n_samples
        self.prefix = check_prefix("prefix", prefix)
        self.settings: Settings = settings or SampleSettings(n_samples)
        self.objects = objects

    # the evaluation

    @property
    def best_key(self) -> str | None:
        """Key of the value that is lowest for the best evaluation; None without a ranking."""
        return None

    @abstractmethod
    def fit(self, real: ImageSet, probe: Tensor, comm: Collective, progress: Progress = no_progress) -> FitReport:
        """Fix all that is constant for a run, or keep it from a saved state. Every process calls it.

        Args:
            real: Source of the real images.
            probe: Some generated images [n, C, H, W], on the device to evaluate on.
            comm: Processes that evaluate together.
            progress: Progress bar for the steps that take long.

        Raises:
            ValueError: If the configuration cannot work with these images.
        """

    @abstractmethod
    def update(self, samples: Samples) -> None:
        """Add this process's samples, without communication."""

    @abstractmethod
    def compute(self, comm: Collective) -> EvaluationT:
        """Return the evaluation of all samples. Every process calls it, once `update` succeeded on all."""

    @property
    def needs_first_samples(self) -> bool:
        """True if `take_first_samples` must be called after `fit`, to compare a model with itself."""
        return False

    def take_first_samples(self, samples: Samples, comm: Collective) -> None:
        """Add this process's part of the samples to compare later ones with. Every process calls it."""

    def commit(self, evaluation: EvaluationT, history: History) -> list[Finding]:
        """Record that an evaluation succeeded on every process; return the findings that deserve an alert.

        If this fails on one process, the changes on all processes are undone, see `commit_evaluation`.

        Args:
            evaluation: Evaluation that succeeded.
            history: All records; the last is that of this evaluation.
        """
        return []

    def networks(self) -> Mapping[str, nn.Module]:
        """Return the networks that `fit` freezes, by the name of their argument."""
        return {}

    def moved_networks(self) -> Mapping[str, nn.Module]:
        """Return the networks that `fit` moves to the samples' device, by the name of their argument."""
        return self.networks()

    def reuse(self, manifest: Mapping[str, Any], folder: Path) -> None:
        """Let `fit` reuse the fixed values of a run with the same settings.

        Args:
            manifest: Manifest of that run.
            folder: Folder with the files that the manifest names.
        """

    def repeat(self, values: Mapping[str, float]) -> None:
        """Measure the next samples in the same way as those of `values`."""

    def forget(self) -> None:
        """Let the next `fit` find everything from scratch."""

    def threads(self) -> AbstractContextManager[None]:
        """Return a context that computes on at most as many threads as there were free processors at the first use.

        On busy processors threads wait for each other: decompositions take ten times as long on two threads as on one.
        """
        if self.processors is None and torch.get_num_threads() > 1:
            self.processors = free_processors()
        return at_most_threads(self.processors)

    # what it declares

    def values(self) -> Sequence[ValueSpec]:
        """Return the declarations of its values, once fitted; a value without one has a plain axis of its own."""
        return ()

    def findings(self, evaluation: EvaluationT, history: History) -> tuple[Finding, ...]:
        """Return the findings of an evaluation, the main one first.

        Args:
            evaluation: Evaluation with its values.
            history: All records; the last is that of this evaluation.
        """
        return ()

    def presenter(self) -> Presenter[EvaluationT]:
        """Return the presenter of its evaluations, once fitted."""
        return Presenter()

    # what makes it reproducible

    def write_artifacts(self, folder: Path) -> None:
        """Write the files that manifests refer to. Only rank zero calls it, once fitted."""

    def manifest(self) -> dict[str, Any]:
        """Return the data needed to repeat an evaluation."""
        return {}

    def unserializable_args(self) -> list[str]:
        """Name the given arguments that a manifest cannot hold."""
        return [name for name, value in self.objects.items() if value is not None]

    # state

    def comparable_settings(self) -> dict[str, Any]:
        """Return the settings that must agree for comparable values, as plain Python."""
        return self.settings.to_manifest()

    def fit_state(self) -> dict[str, Any]:
        """Return the fixed values of the run and the state for the next evaluation: tensors and plain Python."""
        return {}

    def load_fit_state(self, state: Mapping[str, Any]) -> None:
        """Take over the result of `fit_state`, saved with the same settings."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain Python."""
        return {"settings": self.comparable_settings(), "fit": self.fit_state(), "processors": self.processors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state; the values fixed for the run stay fixed.

        Raises:
            SettingsChangedError: If it was saved with other settings; nothing is taken over then.
        """
        check_same_settings(self.comparable_settings(), state["settings"])
        self.processors = state["processors"]
        self.load_fit_state(state["fit"])


def run_evaluation(
    evaluator: Evaluator[EvaluationT], draw: Callable[[], Samples], comm: Collective, seed: int
) -> tuple[Samples, EvaluationT]:
    """Draw samples and evaluate them; if one process fails, every process raises.

    Args:
        evaluator: Fitted evaluator.
        draw: Function that returns this process's samples.
        comm: Processes that evaluate together.
        seed: Seed of the random numbers that a metric may draw; the caller's random states are restored.

    Returns:
        This process's samples, and the evaluation of all samples with `sampling_seconds` and `metric_seconds`.

    Raises:
        StopEvaluation: On every process, if the training around it was told to stop.
    """
    start = time.perf_counter()
    with comm.all_ranks_or_none():
        samples = draw()
    drawn = time.perf_counter()
    evaluation = _measured(evaluator, samples, seed, comm)
    evaluation.values.update(sampling_seconds=drawn - start, metric_seconds=time.perf_counter() - drawn)
    return samples, evaluation


def commit_evaluation(
    evaluator: Evaluator[EvaluationT], evaluation: EvaluationT, history: History, comm: Collective
) -> list[Finding]:
    """Commit an evaluation on every process; if one fails, every evaluator is restored and every process raises.

    This restores the attributes of the evaluator and of the objects that it holds, see `Snapshot`.
    """
    before = Snapshot({"evaluator": evaluator}, tensor_bytes=None)
    try:
        with comm.all_ranks_or_none():
            return evaluator.commit(evaluation, history)
    except Exception:
        before.restore()
        raise


def evaluate_fitted(
    evaluator: Evaluator[EvaluationT], samples: Samples, seed: int = 0, comm: Collective | None = None
) -> EvaluationT:
    """Evaluate this process's generated images with a fitted evaluator; return values and findings."""
    evaluation = _measured(evaluator, samples, seed, comm or SingleProcess())
    return replace(evaluation, findings=evaluator.findings(evaluation, [evaluation.values]))


def _measured(evaluator: Evaluator[EvaluationT], samples: Samples, seed: int, comm: Collective) -> EvaluationT:
    with preserve_rng(), comm.only_these(), evaluator.threads():
        seed_everything(seed)
        with comm.all_ranks_or_none():
            evaluator.update(samples)
        with comm.all_ranks_or_none():
            evaluation = evaluator.compute(comm)
            taken = evaluation.values.keys() & {*MOMENT, *(spec.key for spec in RUN_VALUES)}
            if taken:
                raise ValueError(
                    f"Expected values with names of their own, but {type(evaluator).__name__} gives {min(taken)!r}, "
                    "which a monitor adds. Give it another name."
                )
            return evaluation
