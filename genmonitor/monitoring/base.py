# SPDX-License-Identifier: Apache-2.0
"""Monitor: common base of the monitors of a Trainer and of a plain loop."""

from __future__ import annotations

import html
import math
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from genmonitor._formatting import short
from genmonitor._html import page_html, text_html
from genmonitor._io import Progress, no_progress, say, warn
from genmonitor._stop import StopEvaluation, stops_alone, stops_when
from genmonitor._validation import NotFiniteError, check_bool, check_callable, check_one_of
from genmonitor.distributed import Collective, FailedElsewhereError
from genmonitor.evaluation.evaluator import (
    PROBE,
    Evaluator,
    SettingsChangedError,
    check_same_settings,
    commit_evaluation,
    reading_state,
    run_evaluation,
)
from genmonitor.evaluation.results import MOMENT, Alert, History
from genmonitor.findings.finding import Finding
from genmonitor.findings.values import RUN_VALUES, ValueSpec
from genmonitor.images.batches import ImageKey
from genmonitor.images.image_set import ImageSet
from genmonitor.images.model import SampledModel
from genmonitor.images.sampler import Sampler, Samples
from genmonitor.loggers.publisher import PublishedEvaluation, Publisher
from genmonitor.monitoring.options import (
    MAX_FAILURES,
    FailurePolicy,
    Log,
    OnError,
    check_apart,
    check_evaluate_on,
    evaluation_device,
    moved,
)
from genmonitor.training_state.sharding import sharded_parts


@dataclass(frozen=True)
class Moment:
    """Time of an evaluation.

    Attributes:
        epoch: Epoch with its fraction, for curves.
        step: Step of the optimizer, for loggers.
        whole_epoch: Integer epoch, for names of files.
    """

    epoch: float
    step: int
    whole_epoch: int


class Monitor:
    """Fits an evaluator, evaluates a given model with it on request and publishes the results.

    Args:
        evaluator: Evaluator; log keys and files begin with its prefix.
        sampler: Sampler of the number of samples that the evaluator needs.
        real_images: Source of the real images.
        warn: Function that shows a warning, on rank zero only.
        inform: Function that shows a message, on rank zero only.
        image_key: See `EvaluationOptions`, like the following options.
        evaluate_on: See `EvaluationOptions`.
        on_alert: See `EvaluationOptions`.
        on_error: See `EvaluationOptions`.
        verbose: See `EvaluationOptions`.
        log: See `EvaluationOptions`.

    Attributes:
        history: Record of values, with `epoch` and `step`, for each evaluation of the run.
        findings: Findings of the last evaluation in this process, the main one first.
        is_best: True if the last evaluation succeeded and none before was better, so that its weights should be kept.
        verbose: True to print messages other than warnings and alerts.
    """

    def __init__(
        self,
        evaluator: Evaluator[Any],
        sampler: Sampler,
        *,
        real_images: Any,
        warn: Callable[[str], Any],
        inform: Callable[[str], Any],
        image_key: ImageKey = None,
        evaluate_on: str | torch.device | None = None,
        on_alert: Callable[[str], Any] | None = None,
        on_error: OnError = "warn",
        verbose: bool = True,
        log: Log = "main",
    ) -> None:
        check_callable("on_alert", on_alert, "that takes a line of text")
        check_sampler(sampler, evaluator)
        self.evaluate_on = check_evaluate_on(evaluate_on)
        self.evaluator, self.sampler = evaluator, sampler
        self.failures = FailurePolicy(on_error)
        self.verbose = check_bool("verbose", verbose)
        raises, said = self.failures.raises, partial(say, by=inform) if verbose else _say_nothing
        warned = warn if raises else partial(say, by=warn)
        logs_all = check_one_of("log", log, ("main", "all")) == "all"
        self.publisher = Publisher(type(self).__name__, evaluator.prefix, on_alert, raises, warned, said, logs_all)
        self.real_images, self.image_key = real_images, image_key
        self.history: History = []
        self.findings: tuple[Finding, ...] = ()
        self.is_best = False
        self._resumed = False

    @property
    def prefix(self) -> str:
        """Prefix of log keys and files."""
        return self.evaluator.prefix

    @property
    def key(self) -> str:
        """Key whose lowest value marks the best weights, for `ModelCheckpoint(monitor=monitor.key)`.

        Raises:
            AttributeError: If the evaluator has no order of preference, naming the values that have one.
        """
        if self.evaluator.best_key is None:
            modes = {"high": "max", "low": "min", None: ""}
            ordered = [x for x in self.evaluator.values() if x.better and not x.detail]
            given = [f"monitor={f'{self.prefix}/{x.key}'!r}, mode={modes[x.better]!r}" for x in ordered]
            raise AttributeError(
                f"Expected a monitor that ranks its evaluations, but {type(self).__name__} has no order of preference. "
                f"Give one of its values: {'; '.join(given) or 'none of them is better high or low'}."
            )
        return f"{self.prefix}/{self.evaluator.best_key}"

    def values(self) -> list[ValueSpec]:
        """Return the declarations of the values in the history, once fitted."""
        return [*self.evaluator.values(), *RUN_VALUES]

    def summary(self) -> str:
        """Return the last evaluation's results for the terminal; before the first evaluation the monitor's name."""
        return self.evaluator.presenter().summary(self.findings, self.history) if self.history else repr(self)

    def table(self) -> str:
        """Return a table of the last evaluation for the terminal; empty before the first, or without one."""
        return self.evaluator.presenter().table(self.findings, self.history) if self.history else ""

    # a notebook

    def show(self) -> None:
        """Show the last evaluation: table and figures in a notebook, elsewhere the table and the path of the report."""
        if _in_notebook():
            from IPython.display import display

            display(self)
            return
        print(self._reported())

    def _reported(self) -> str:
        """Return the last evaluation's table, the answers of the report's first screen, and its path."""
        page = self.publisher.page
        if page is None:
            return Monitor.summary(self)
        return f"{self.table()}\n{self.publisher.answers()}\n\nReport: {page}".lstrip()

    def _repr_html_(self) -> str:
        """Return the report for a notebook, as in a browser; the last values if there is no report."""
        page = self.publisher.page
        if page is None:  # before an evaluation, loaded from a checkpoint, or a trial run
            values = [f"{name}: {short(value)}" for record in self.history[-1:] for name, value in record.items()]
            return text_html("\n".join([repr(self), *values]))
        shown = page_html(page.read_text(encoding="utf-8"), f"{type(self).__name__} {self.prefix}")
        return f"{shown}<p>Report: <code>{html.escape(str(page))}</code></p>"

    def __repr__(self) -> str:
        settings = f"prefix={self.prefix!r}, n_samples={self.evaluator.n_samples}"
        return f"{type(self).__name__}({settings}, evaluations={len(self.history)})"

    # what subclasses call; every process does

    def _fit_evaluator(self, real: ImageSet, model: SampledModel, comm: Collective, progress: Progress) -> None:
        """Fit the evaluator to real images and some samples, and show its report."""
        self._agree_on_settings(comm)
        with comm.all_ranks_or_none():
            device = evaluation_device(self.evaluate_on, model.device, comm)
            check_apart(self.evaluator, model.module, device, model.device)
            first = range(min(PROBE, self.sampler.n_samples))
            try:
                probe = self.sampler.draw(model, first, progress)
            except NotFiniteError:
                if not self._resumed:
                    raise
                # the configuration of a resumed run is valid, and its evaluations will report a broken generator
                probe = self.sampler.draw(model, first, progress, repair=True)
            if not len(probe):  # there are no samples yet, so real images replace them
                probe = real.compared.first(len(first)).to(model.device)
        with self.evaluator.threads():
            report = self.evaluator.fit(real, probe.to(device), comm, progress)
        for message in report.messages:
            self.publisher.notes.inform(message)
        if not report.comparable:
            self.reset_history()
        with comm.all_ranks_or_none():
            notes = (*report.notes, *self.sampler.check_rows(model, probe))
        for note in notes:
            self.publisher.notes.add(note)
        if self.evaluator.needs_first_samples:
            with comm.all_ranks_or_none():
                samples = self._samples(model, comm, progress)
            self.evaluator.take_first_samples(samples, comm)

    def _agree_on_settings(self, comm: Collective) -> None:
        """Refuse settings that differ from those of process zero, which would give a mixture or a deadlock."""
        metrics = list(self.evaluator.objects.get("extra_metrics") or ())
        of_loop = {"sample_batch_size": self.sampler.batch_size, "on_error": self.failures.raises}
        own = {"evaluator": type(self.evaluator).__name__, "extra_metrics": metrics, **of_loop}
        own |= self.evaluator.comparable_settings() | self.sampler.settings()
        first = comm.broadcast(own)
        with comm.all_ranks_or_none():
            if other := [name for name in {**own, **first} if own.get(name) != first.get(name)]:
                raise ValueError(
                    f"Expected the same settings on every process, but {', '.join(other)} of process {comm.rank} and "
                    "process 0 differ. Use a seed for random values, and a fixed order for sets."
                )

    def _samples(self, model: SampledModel, comm: Collective, progress: Progress) -> Samples:
        """Return this process's samples on the device of the evaluation."""
        device = evaluation_device(self.evaluate_on, model.device, comm)
        return moved(self.sampler.samples(model, comm, progress), device)

    def _run_evaluation(
        self,
        model: SampledModel,
        comm: Collective,
        moment: Moment,
        progress: Progress = no_progress,
        told: Callable[[], bool] = lambda: False,
        **counts: float,
    ) -> PublishedEvaluation | None:
        """Evaluate a model and record the result; None, after a message, if that failed or was stopped.

        Args:
            model: Model that draws the samples.
            comm: Processes that evaluate together.
            moment: Moment of this evaluation.
            progress: Progress bar over the batches.
            told: Function that returns True once the training was told to stop, which is not a failure.
            counts: Further numbers for the record.
        """
        self.publisher.notes.set_moment(moment.epoch, moment.step)
        self.is_best = False

        def drawn() -> Samples:
            with stops_alone(not sharded_parts(model.module)):
                return self._samples(model, comm, progress)

        try:
            with stops_when(told, alone=comm.world_size == 1):
                samples, evaluation = run_evaluation(self.evaluator, drawn, comm, self.sampler.seed)
            record = {"epoch": moment.epoch, "step": moment.step, **evaluation.values, **counts}
            history = [*self.history, record]
            alerts = commit_evaluation(self.evaluator, evaluation, history, comm)
            evaluation = replace(evaluation, findings=self.evaluator.findings(evaluation, history))
        except (Exception, StopEvaluation) as error:  # on every process
            if comm.any_true(isinstance(error, StopEvaluation)):
                self.publisher.notes.add(
                    f"the evaluation of epoch {moment.epoch:g} was left: training has to stop or save"
                )
                return None
            if self.failures.raises:
                raise
            self._skip(error, moment, comm)
            return None
        self.failures.reset()
        key = self.evaluator.best_key
        self.is_best = (
            key is not None and key in record and all(record[key] < x.get(key, math.inf) for x in self.history)
        )
        self.history.append(record)
        self.findings = evaluation.findings
        return PublishedEvaluation(self.evaluator, evaluation, self.history, samples, alerts, moment.whole_epoch)

    def _publish(self, found: PublishedEvaluation, circumstances: Callable[[], dict[str, Any]]) -> None:
        """Show and write an evaluation with its manifest. Only rank zero calls it."""
        record = self.history[-1]
        values = {name: float(value) for name, value in record.items() if name not in MOMENT}
        self.publisher.publish_values(values, self.values, found.epoch, int(record["step"]))
        self.publisher.publish(found, self.manifest, circumstances, self.values)

    def _skip(self, error: BaseException, moment: Moment, comm: Collective) -> None:
        """Report that an evaluation failed, and let the run go on without it."""
        not_finite = comm.any_true(isinstance(error, NotFiniteError))
        elsewhere = isinstance(error, FailedElsewhereError)
        if not elsewhere:
            where = f" on process {comm.rank}" if comm.world_size > 1 else ""
            trace = "".join(traceback.format_exception(error))
            # not by the publisher, which only process zero says
            say(f"{type(self).__name__}: this evaluation failed{where} and is skipped.\n{trace}", warn)
        if not_finite:
            if self.failures.found_not_finite() and comm.rank == 0:
                what = "NaN or infinite values"
                text = f"the generator produced {what} at epoch {moment.whole_epoch}, which cannot be scored."
                self.publisher.publish_alert(Alert(f"{self.prefix}: {what}", text), what)
        else:
            switched_off = self.failures.failed()
            why = "" if elsewhere else f": {type(error).__name__}: {error}"
            self.publisher.notes.record(f"The evaluation of epoch {moment.epoch:g} failed and was skipped{why}.")
            if switched_off:
                self.publisher.notes.add(f"{MAX_FAILURES} evaluations in a row failed, so the monitor is switched off.")
        if comm.rank == 0:
            self.publisher.write_report()

    def manifest(self) -> dict[str, Any]:
        """Return the fixed data needed to repeat an evaluation, except the model and its data."""
        sampler, image_key = self.sampler, self.image_key
        own = {
            "monitor": type(self).__name__,
            "title": self.evaluator.presenter().title or type(self).__name__,
            "best_key": self.evaluator.best_key,
            "settings": self.evaluator.settings.to_manifest(),
            "processors": self.evaluator.processors,
            "seed": sampler.seed,
            "n_samples": sampler.n_samples,
            "sample_batch_size": sampler.batch_size,
            "prompts": None if sampler.prompts is None else sampler.prompts.values,
            "image_key": None if callable(image_key) else image_key,
            "evaluate_on": None if self.evaluate_on is None else str(self.evaluate_on),
            "unserializable_args": self._unserializable_args(),
            "folder": str(self.publisher.folder.path.resolve()),
        }
        return {**own, **self.evaluator.manifest()}

    def _unserializable_args(self) -> list[str]:
        """Name the arguments that a manifest cannot hold and that `genmonitor replay` needs from the user's code."""
        given = {
            "sample_fn": self.sampler.sample_fn,
            "reuse": self.sampler.settings().get("reuse"),
            "real_images": self.real_images,
            "image_key": self.image_key if callable(self.image_key) else None,
        }
        return [name for name, value in given.items() if value is not None] + self.evaluator.unserializable_args()

    # state

    def reset_history(self) -> None:
        """Forget the curves and the notes of their evaluations."""
        self.history, self.findings = [], ()
        self.publisher.forget_evaluations()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain Python."""
        return {
            "history": [dict(record) for record in self.history],
            "findings": [finding.to_dict() for finding in self.findings],
            "sampler": self.sampler.settings(),
            "evaluator": self.evaluator.state_dict(),
            **self.failures.state_dict(),
            **self.publisher.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state; the values fixed for the run stay fixed.

        Raises:
            ValueError: If the state is incomplete.
        """
        self._resumed = True
        with reading_state(f"{type(self).__name__}[prefix={self.prefix}]"):
            self.history = [dict(record) for record in state_dict["history"]]
            self.findings = tuple(Finding.from_dict(saved) for saved in state_dict["findings"])
            self.failures.load_state_dict(state_dict)
            self.publisher.load_state_dict(state_dict)
            try:
                check_same_settings(self.sampler.settings(), state_dict["sampler"])
                self.evaluator.load_state_dict(state_dict["evaluator"])
            except SettingsChangedError as error:
                self.publisher.notes.add(
                    f"resumed with {', '.join(error.names)} changed, so everything is fitted again and the curves "
                    "start over: values before and after cannot be compared."
                )
                self.evaluator.forget()
                self.reset_history()


def check_sampler(sampler: Sampler, evaluator: Evaluator[Any]) -> None:
    """Refuse a sampler whose samples do not match the evaluator."""
    if evaluator.n_samples != sampler.n_samples:
        raise ValueError(
            f"Expected a sampler that draws as many samples as the evaluator needs, {evaluator.n_samples}, but got "
            f"{sampler.n_samples}. Give Sampler({evaluator.n_samples}, ...)."
        )
    wanted = None if evaluator.prompts is None else evaluator.prompts.values
    given = None if sampler.prompts is None else sampler.prompts.values
    if wanted is not None and wanted != given:
        raise ValueError(
            "Expected a sampler with the prompts of the evaluator, but its prompts differ. Give "
            "Sampler(n, prompts=evaluator.prompts)."
        )


def _in_notebook() -> bool:
    """Return True in a notebook, but not in IPython in a terminal, which shows no pictures."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _say_nothing(text: str) -> None:
    """Ignore messages of a monitor that is not `verbose`; unlike a lambda it can be pickled."""
