# SPDX-License-Identifier: Apache-2.0
"""What an evaluator is, and how one evaluation of a generator is run: in a Trainer, on a command line, or in a loop."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from matplotlib.figure import Figure
from torch import Tensor, nn

from genmonitor._html import text_html
from genmonitor._validation import check_prefix
from genmonitor.evaluation.collective import Collective
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.data.reference import ReferenceImages
from genmonitor.evaluation.progress import Progress, no_progress
from genmonitor.evaluation.results import (
    Alert,
    Evaluation,
    FitReport,
    History,
    Samples,
    ShownImages,
    Table,
    ValueInfo,
    of_value,
)
from genmonitor.evaluation.training_state.isolation import remember_attributes
from genmonitor.evaluation.training_state.rng import preserve_rng, seed_everything
from genmonitor.plotting.style import Drawing

_T = TypeVar("_T")
EvaluationT = TypeVar("EvaluationT", bound=Evaluation)


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
        names: the settings that differ.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"Expected the settings of the saved state, but these differ: {', '.join(names)}.")
        self.names = tuple(names)


def check_same_settings(current: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Raise SettingsChangedError if a saved setting differs from the current one."""
    if changed := [name for name, value in current.items() if value != saved.get(name)]:
        raise SettingsChangedError(changed)


class Evaluator(ABC, Generic[EvaluationT]):
    """Evaluates a generator from its samples: fitted once to real images, then run as often as wanted.

    A subclass implements `fit`, `update` and `compute`; whatever else it says and draws is optional.

    Args:
        n_samples: generated images per evaluation.
        prefix: what its log keys and files begin with.
    """

    about: ClassVar[Mapping[str, str]] = {}
    """What each value says, by its name; a name that ends in … stands for all that begin so."""
    details: ClassVar[tuple[str, ...]] = ()
    """Values that are worth no chart of their own in a logger, being constant over a run or read best in the report."""
    prompts: Prompts | None = None
    """Which prompt it takes each sample for; None where that does not matter."""
    figures_to_keep: ClassVar[tuple[str, ...]] = ()
    """Figures of which each evaluation's is kept, not only the latest."""

    def __init__(self, n_samples: int, prefix: str) -> None:
        self.n_samples = n_samples
        self.prefix = check_prefix("prefix", prefix)

    # the evaluation

    @abstractmethod
    def fit(
        self, real: ReferenceImages, probe: Tensor, comm: Collective, progress: Progress = no_progress
    ) -> FitReport:
        """Fix what stays fixed for a run, or keep what a saved state fixed. Every process calls it.

        Args:
            real: where real images come from.
            probe: some generated images [n, C, H, W], on the device to evaluate on.
            comm: the processes that evaluate together.
            progress: wraps what takes long.

        Raises:
            ValueError: if the configuration cannot work with these images.
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

    def commit(self, evaluation: EvaluationT, history: History) -> list[Alert]:
        """Take note that an evaluation succeeded on every process; return what deserves an alert.

        Where this fails on one process, no process keeps what it changed, see `commit_evaluation`.

        Args:
            evaluation: what was found.
            history: all records, that of this evaluation the last.
        """
        return []

    def networks(self) -> Mapping[str, nn.Module]:
        """Return the networks that `fit` freezes, by the argument that they came by."""
        return {}

    def moved_networks(self) -> Mapping[str, nn.Module]:
        """Return the networks that `fit` moves to the samples' device, by the argument that they came by."""
        return self.networks()

    def reuse(self, folder: Path) -> None:
        """Let `fit` take over what a run with the same settings left in a folder, where it looks for anything."""

    def forget(self) -> None:
        """Let the next `fit` find everything anew."""

    # what it shows; rank zero alone calls these

    def charts(self) -> Mapping[str, Sequence[str]]:
        """Return which values share a chart, by its title."""
        return {}

    def higher_is_better(self) -> Mapping[str, bool]:
        """Return which values are better when they are higher, and which when lower, by name as in `about`."""
        return {}

    def value_info(self, name: str) -> ValueInfo:
        """Return what a logger is told of a value."""
        detail = of_value(name, dict.fromkeys(self.details, True)) is not None
        return ValueInfo(of_value(name, self.about) or "", of_value(name, self.higher_is_better()), detail)

    def fit_figures(self) -> Mapping[str, Figure | Drawing]:
        """Return figures of what `fit` found, or functions that draw them."""
        return {}

    def figures(self, evaluation: EvaluationT, history: History, samples: Samples) -> Mapping[str, Figure | Drawing]:
        """Return figures of an evaluation and of the curves up to it, or functions that draw them.

        A `functools.partial` of a function of this package, with values that pickle takes, is drawn in a process beside
        the training; tensors come there as NumPy arrays.
        """
        return {}

    def shown_real(self) -> ShownImages | None:
        """Return some of the real images that generated ones are compared with, None for a page without them."""
        return None

    def shown_samples(self, samples: Samples) -> ShownImages | None:
        """Return some generated images by themselves, as `figures` shows them in a figure."""
        return None

    def tables(self, evaluation: EvaluationT) -> Mapping[str, Table]:
        """Return the tables of an evaluation."""
        return {}

    def message(self, evaluation: EvaluationT, history: History) -> str:
        """Return one line about the last evaluation."""
        return ""

    def summary(self, history: History) -> str:
        """Return what the run found, as a table for the terminal."""
        return ""

    def summary_html(self, history: History) -> str:
        """Return the same for a notebook."""
        return text_html(self.summary(history))

    # what makes it reproducible

    def write_artifacts(self, folder: Path) -> None:
        """Write the files that manifests refer to. Rank zero alone calls it, once fitted."""

    def manifest(self) -> dict[str, Any]:
        """Return what is needed to evaluate the same again."""
        return {}

    def unserializable_args(self) -> list[str]:
        """Name the arguments given that no manifest can hold."""
        return []

    # state

    def settings(self) -> dict[str, Any]:
        """Return what values depend on, as plain Python."""
        return {"n_samples": self.n_samples}

    def fit_state(self) -> dict[str, Any]:
        """Return what is fixed for the run and what the next evaluation depends on: tensors and plain Python."""
        return {}

    def load_fit_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `fit_state` returned, saved with the same settings."""

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain Python only."""
        return {"settings": self.settings(), "fit": self.fit_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state; what is fixed for a run then stays fixed.

        Raises:
            SettingsChangedError: if it was saved with other settings; nothing is taken over then.
        """
        check_same_settings(self.settings(), state["settings"])
        self.load_fit_state(state["fit"])


def run_evaluation(
    evaluator: Evaluator[EvaluationT], draw: Callable[[], Samples], comm: Collective, seed: int
) -> tuple[Samples, EvaluationT]:
    """Draw samples and evaluate them; where one process fails, every one raises.

    Args:
        evaluator: fitted.
        draw: gives this process's samples.
        comm: the processes that evaluate together.
        seed: of the random numbers that a metric may draw; the caller's random states are restored.

    Returns:
        This process's samples and what those of all gave, with `sampling_seconds` and `metric_seconds`.
    """
    start = time.perf_counter()
    with comm.all_ranks_or_none():
        samples = draw()
    drawn = time.perf_counter()
    with preserve_rng():
        seed_everything(seed)
        with comm.all_ranks_or_none():
            evaluator.update(samples)
        with comm.all_ranks_or_none():
            evaluation = evaluator.compute(comm)
    seconds = {"sampling_seconds": drawn - start, "metric_seconds": time.perf_counter() - drawn}
    evaluation.values.update(seconds)
    return samples, evaluation


def commit_evaluation(
    evaluator: Evaluator[EvaluationT], evaluation: EvaluationT, history: History, comm: Collective
) -> list[Alert]:
    """Commit an evaluation on every process; where one fails, every evaluator is as it was, and every process raises.

    Put back are the evaluator's attributes and those of the objects that it holds, see `remember_attributes`.
    """
    put_back = remember_attributes(evaluator)
    try:
        with comm.all_ranks_or_none():
            return evaluator.commit(evaluation, history)
    except Exception:
        put_back()
        raise
