# SPDX-License-Identifier: Apache-2.0
"""Evaluator: measures a generator by its samples; and one evaluation of it, in a Trainer, a loop or a command."""

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
from genmonitor.evaluation.results import EvaluationT, FitReport, History, Presenter
from genmonitor.evaluation.settings import SampleSettings, Settings
from genmonitor.findings.finding import Finding
from genmonitor.findings.values import ValueSpec
from genmonitor.images.image_set import ImageSet
from genmonitor.images.prompts import Prompts
from genmonitor.images.sampler import Samples
from genmonitor.linalg.chunking import free_processors
from genmonitor.training_state.rng import preserve_rng, seed_everything
from genmonitor.training_state.snapshot import Snapshot

PROBE = 16
"""Generated images that tell shape and value range, and whether encoders and metrics take them."""
_T = TypeVar("_T")


class NotFittedError(RuntimeError):
    """An evaluator was used before `fit`."""


def require_fitted(fitted: _T | None, name: str) -> _T:
    """Return what `fit` found; raise NotFittedError before it."""
    if fitted is None:
        raise NotFittedError(f"Expected a fitted {name}. Call `fit` with real images first.")
    return fitted


class SettingsChangedError(ValueError):
    """A saved state was made with other settings, so its values cannot be compared with new ones.

    Attributes:
        names: The settings that differ.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"Expected the settings of the saved state, but these differ: {', '.join(names)}.")
        self.names = tuple(names)


@contextmanager
def at_most_threads(count: int | None) -> Iterator[None]:
    """Compute on no more than `count` threads inside the block; None for as many as before."""
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
    """Return process zero's signature of real images, and a note where other processes have others.

    Args:
        own: That of this process's, None where it has none.
        comm: The processes that evaluate together.

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
    """Refuse a saved state that is not whole, naming whose it is."""
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
    """Measures a generator by its samples: fitted once to real images, then run as often as wanted.

    A subclass implements `fit`, `update` and `compute`. It may declare its `values`, return `findings`, and have a
    `presenter` that shows more than these.

    Args:
        n_samples: Generated images per evaluation.
        prefix: Prefix of log keys and files.
        settings: Settings on which the values depend; None for `n_samples` alone.
        objects: The arguments given that no manifest can hold, such as networks, by name; None for one left out.
    """

    prompts: Prompts | None = None
    """Which prompt it takes each sample for; None where that does not matter."""
    best_key: str | None = None
    """Key of the value whose lowest is that of the best evaluation; None where it has no order of preference."""
    processors: int | None = None
    """Number of processors to compute on, found at the first use and kept: the last digits of a sum depend on it."""

    def __init__(self, n_samples: int, prefix: str, settings: Settings | None = None, **objects: Any) -> None:
        self.n_samples = n_samples
        self.prefix = check_prefix("prefix", prefix)
        self.settings: Settings = settings or SampleSettings(n_samples)
        self.objects = objects

    # the evaluation

    @abstractmethod
    def fit(self, real: ImageSet, probe: Tensor, comm: Collective, progress: Progress = no_progress) -> FitReport:
        """Fix what stays fixed for a run, or keep what a saved state fixed. Every process calls it.

        Args:
            real: Source of the real images.
            probe: Some generated images [n, C, H, W], on the device to evaluate on.
            comm: The processes that evaluate together.
            progress: Progress bar for the steps that take long.

        Raises:
            ValueError: If the configuration cannot work with these images.
        """

    @abstractmethod
    def update(self, samples: Samples) -> None:
        """Take in this process's samples, without talking to other processes."""

    @abstractmethod
    def compute(self, comm: Collective) -> EvaluationT:
        """Return what the samples of all processes give. Every process calls it, once `update` succeeded on all."""

    @property
    def needs_first_samples(self) -> bool:
        """Whether `take_first_samples` must be called after `fit`, for a model that is compared with itself."""
        return False

    def take_first_samples(self, samples: Samples, comm: Collective) -> None:
        """Take in this process's part of the samples that later ones are compared with. Every process calls it."""

    def commit(self, evaluation: EvaluationT, history: History) -> list[Finding]:
        """Take note that an evaluation succeeded on every process; return the findings that deserve an alert.

        Where this fails on one process, no process keeps what it changed, see `commit_evaluation`.

        Args:
            evaluation: What was found.
            history: All records, that of this evaluation the last.
        """
        return []

    def networks(self) -> Mapping[str, nn.Module]:
        """Return the networks that `fit` freezes, by the argument that they came by."""
        return {}

    def moved_networks(self) -> Mapping[str, nn.Module]:
        """Return the networks that `fit` moves to the samples' device, by the argument that they came by."""
        return self.networks()

    def reuse(self, manifest: Mapping[str, Any], folder: Path) -> None:
        """Let `fit` keep what a run of the same settings fixed.

        Args:
            manifest: Manifest of that run.
            folder: Where the files are that the manifest names.
        """

    def repeat(self, values: Mapping[str, float]) -> None:
        """Measure the next samples as those were measured that gave `values`."""

    def forget(self) -> None:
        """Let the next `fit` find everything from scratch."""

    def threads(self) -> AbstractContextManager[None]:
        """Return a block that computes on no more threads than there were free processors at the first use.

        On busy processors threads wait for each other: decompositions take ten times as long on two as on one.
        """
        if self.processors is None and torch.get_num_threads() > 1:
            self.processors = free_processors()
        return at_most_threads(self.processors)

    # what it declares

    def values(self) -> Sequence[ValueSpec]:
        """Return the declarations of its values, once fitted; one that is not declared has a plain axis of its own."""
        return ()

    def findings(self, evaluation: EvaluationT, history: History) -> tuple[Finding, ...]:
        """Return what an evaluation found, the finding to look at first before the others.

        Args:
            evaluation: What was measured.
            history: All records, that of this evaluation the last.
        """
        return ()

    def presenter(self) -> Presenter[EvaluationT]:
        """Return what shows its evaluations, once fitted."""
        return Presenter()

    # what makes it reproducible

    def write_artifacts(self, folder: Path) -> None:
        """Write the files that manifests refer to. Rank zero alone calls it, once fitted."""

    def manifest(self) -> dict[str, Any]:
        """Return what is needed to evaluate the same again."""
        return {}

    def unserializable_args(self) -> list[str]:
        """Name the arguments given that no manifest can hold."""
        return [name for name, value in self.objects.items() if value is not None]

    # state

    def comparable_settings(self) -> dict[str, Any]:
        """Return what must be the same for values to be compared, as plain Python."""
        return self.settings.to_manifest()

    def fit_state(self) -> dict[str, Any]:
        """Return what is fixed for the run and what the next evaluation depends on: tensors and plain Python."""
        return {}

    def load_fit_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `fit_state` returned, saved with the same settings."""

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain Python only."""
        return {"settings": self.comparable_settings(), "fit": self.fit_state(), "processors": self.processors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state; what is fixed for a run then stays fixed.

        Raises:
            SettingsChangedError: If it was saved with other settings; nothing is taken over then.
        """
        check_same_settings(self.comparable_settings(), state["settings"])
        self.processors = state["processors"]
        self.load_fit_state(state["fit"])


def run_evaluation(
    evaluator: Evaluator[EvaluationT], draw: Callable[[], Samples], comm: Collective, seed: int
) -> tuple[Samples, EvaluationT]:
    """Draw samples and evaluate them; where one process fails, every one raises.

    Args:
        evaluator: Fitted.
        draw: Gives this process's samples.
        comm: The processes that evaluate together.
        seed: Seed of the random numbers that a metric may draw; the caller's random states are restored.

    Returns:
        This process's samples and what those of all gave, with `sampling_seconds` and `metric_seconds`.

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
    """Commit an evaluation on every process; where one fails, every evaluator is as it was, and every process raises.

    Put back are the evaluator's attributes and those of the objects that it holds, see `Snapshot`.
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
    """Evaluate this process's generated images with an evaluator that is fitted; return values and findings."""
    evaluation = _measured(evaluator, samples, seed, comm or SingleProcess())
    return replace(evaluation, findings=evaluator.findings(evaluation, [evaluation.values]))


def _measured(evaluator: Evaluator[EvaluationT], samples: Samples, seed: int, comm: Collective) -> EvaluationT:
    with preserve_rng(), comm.only_these(), evaluator.threads():
        seed_everything(seed)
        with comm.all_ranks_or_none():
            evaluator.update(samples)
        with comm.all_ranks_or_none():
            return evaluator.compute(comm)
