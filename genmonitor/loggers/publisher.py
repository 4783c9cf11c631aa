# SPDX-License-Identifier: Apache-2.0
"""Publisher of a monitor's findings to loggers, files of the run, report and terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genmonitor._io import clean, colored, say, warn
from genmonitor._manifest import versions
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.evaluation.results import Alert, Evaluation, History
from genmonitor.findings.finding import Finding, headlines
from genmonitor.findings.line import evaluation_line
from genmonitor.findings.tables import Table
from genmonitor.findings.values import ValueSpec, by_key, grouped_by_chart, main_keys
from genmonitor.images.sampler import Samples
from genmonitor.loggers.facade import Loggers
from genmonitor.loggers.notes import Attempt, Notes
from genmonitor.report.answers import closing
from genmonitor.report.files import FOLDER, run_file
from genmonitor.report.folder import RunFolder, free_folder
from genmonitor.report.pictures import render
from genmonitor.report.run import MonitorRun, read_run, versions_in
from genmonitor.training_state.rng import preserve_rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genmonitor.plotting.style import Drawing


Declarations = Callable[[], Sequence[ValueSpec]]
"""Function that returns the declarations of the values, once they are known."""


@dataclass(frozen=True, eq=False)
class PublishedEvaluation:
    """An evaluation with its history (it is the last record), samples and alerts."""

    evaluator: Evaluator[Any]
    evaluation: Evaluation
    history: History
    samples: Samples
    alerts: list[Finding]
    epoch: int


class Publisher:
    """Shows and writes the results of an evaluator. A failure here never stops training.

    Only rank zero may call the methods, except for `start`.

    Args:
        name: Name of the monitor, for messages.
        prefix: Prefix of log keys and files.
        on_alert: Function called with the text of each alert.
        raise_errors: True to let failures stop training, for tests.
        warn: Function that warns the user, on rank zero only.
        inform: Function that prints other messages, on rank zero only.
        logs_all: True to give loggers every value, not only the main ones.

    Attributes:
        notes: Notes of the run and its evaluations; every process may add some.
        attempt: Runner of side effects that may fail.
        page: Path of the report of this fit, None before it is written.
        message: Line about the last evaluation.
        evaluations: Evaluations of the run, as its file holds them.
        unfinished: True if `finish` has something to send.
    """

    def __init__(
        self,
        name: str,
        prefix: str,
        on_alert: Callable[[str], Any] | None = None,
        raise_errors: bool = False,
        warn: Callable[[str], Any] = warn,
        inform: Callable[[str], Any] = print,
        logs_all: bool = False,
    ) -> None:
        self._prefix, self._on_alert, self._inform, self._logs_all = prefix, on_alert, inform, logs_all
        self.notes = Notes(name, warn, inform)
        self.attempt = Attempt(self.notes.warn, raise_errors)
        self.folder = RunFolder(Path())
        self.evaluations: list[dict[str, Any]] = []
        self._run = Path()
        self._together: tuple[str, ...] = (prefix,)
        self._parts: dict[str, Any] | None = None
        self._loggers = Loggers([])
        self._writes = False
        self.page: Path | None = None
        self.unfinished = False
        self.message = ""

    def start(
        self,
        run: Path,
        loggers: Iterable[Any],
        writes: bool = True,
        together: Collection[str] = (),
    ) -> None:
        """Begin a fit. Every process calls it.

        Args:
            run: Folder of the run.
            loggers: Loggers of the run.
            writes: True to write files.
            together: Prefixes of the monitors of this fit, which share the folder.
        """
        self._run, self._together = run, (self._prefix, *together)
        self._parts = None
        if not self.evaluations:
            self.folder = RunFolder(run / FOLDER)
        self._loggers = Loggers(loggers)
        self.notes.set_whole_run()
        self.attempt.start()
        self.page, self.unfinished = None, False
        self._writes = writes

    def publish_fit(self, evaluator: Evaluator[Any], values: Declarations, history: History) -> None:
        """Choose the folder, and show and write the fixed values of the run.

        Args:
            evaluator: Fitted evaluator.
            values: Function that returns the declarations of the values.
            history: History of earlier evaluations of a resumed run.
        """
        prefix, step = self._prefix, int(history[-1]["step"]) if history else 0
        if not self.evaluations or self.folder.path not in versions_in(self._run, FOLDER):
            self.folder = RunFolder(free_folder(self._run, FOLDER, self._together))
        self.attempt(lambda: self._note_later(step))
        self.attempt(lambda: self._publish_figures(evaluator.presenter().fit_figures(), step, None))
        self._write(lambda folder: folder.write_images(prefix, "real", evaluator.presenter().shown_real(), step))
        self._write(lambda folder: folder.write_artifacts(evaluator.write_artifacts))
        self.attempt(lambda: self._announce(values(), evaluator.settings.to_manifest()))
        self._loggers.each(lambda x: x.finish_evaluation(step))

    def _note_later(self, step: int) -> None:
        """Say which evaluations of the folder a run replaces that goes on from an earlier checkpoint."""
        file = self.folder.path / run_file(self._prefix)
        later = [x for x in MonitorRun.read(file).records if x["step"] > step] if file.exists() else []
        if later:
            self.notes.inform(  # no warning, since it is usual after a crash
                f"the next evaluation replaces what {file} has after the checkpoint, evaluations up to epoch "
                f"{later[-1]['epoch']:g}. Copy its folder now to keep them."
            )

    def _announce(self, values: Sequence[ValueSpec], settings: Mapping[str, Any]) -> None:
        main = main_keys(values)
        logged = [spec for spec in values if self._logs_all or spec.key in main]
        charts = grouped_by_chart(spec for spec in logged if spec.chart is not None)
        layout = {title: [spec.key for spec in specs] for title, specs in charts.items()}
        self._loggers.each(lambda x: x.log_settings(self._prefix, settings))
        self._loggers.each(lambda x: x.log_layout(self._prefix, layout))

    def publish_values(self, values: Mapping[str, float], declared: Declarations, epoch: int, step: int) -> None:
        """Log the main values of an evaluation, or all where all are asked for."""
        shown = set(values)
        if not self._logs_all:
            self.attempt(lambda: shown.intersection_update(main_keys(_specs(values, declared()))))
        named = {f"{self._prefix}/{key}": value for key, value in values.items() if key in shown}
        self._loggers.each(lambda x: x.log_scalars(named | {"epoch": epoch}, step))

    def publish(
        self,
        found: PublishedEvaluation,
        fixed: Callable[[], dict[str, Any]],
        circumstances: Callable[[], dict[str, Any]],
        declared: Declarations,
    ) -> None:
        """Show and write an evaluation and the report.

        Args:
            found: Evaluation.
            fixed: Function that returns the fixed values of the run.
            circumstances: Function that returns the circumstances of this evaluation.
            declared: Function that returns the declarations of the values.
        """
        evaluation, record, presenter = found.evaluation, found.history[-1], found.evaluator.presenter
        step, epoch = int(record["step"]), found.epoch
        for note in evaluation.notes:
            self.notes.add(note)
        for alert in found.alerts:
            title = f"{self._prefix}: {alert.area.name} {alert.verdict}"
            self.publish_alert(Alert(title, alert.text), alert.area.name, alert.since)
        self.message, tables = "", dict[str, Table]()

        def inform() -> None:
            best_key, specs = found.evaluator.best_key, by_key(declared())
            longest = max(map(len, self._together))
            of = f"{self._prefix:<{longest}}" if len({*self._together}) > 1 else ""
            self.message = evaluation_line(evaluation.findings, found.history, specs, best_key, found.alerts, of)
            self._inform(colored(self.message))
            if evaluation.findings:
                text = "\n".join(map(str, headlines(evaluation.findings)))
                self._loggers.each(lambda x: x.log_finding(f"{self._prefix}/finding", clean(text), step))

        def tabulate() -> None:
            tables.update(presenter().tables(evaluation))
            for name, table in tables.items():
                self._log_table(f"{self._prefix}/{name}_table", table.cleaned(), step)
            make = partial(presenter().samples_table, evaluation, found.samples)
            self._loggers.each(lambda x: x.log_samples(f"{self._prefix}/samples_table", make, step))

        def describe() -> None:
            said = [finding.to_dict() for finding in headlines(evaluation.findings)]
            told = {"message": self.message, "wrong": _wrong(evaluation.findings), "versions": versions()}
            self.evaluations.append({"values": dict(record), "headlines": said, **told, **circumstances()})
            self._parts = {"fixed": fixed(), "declared": declared(), "findings": evaluation.findings, "tables": tables}

        def draw() -> None:
            self._publish_figures(presenter().figures(evaluation, found.history, found.samples), step, epoch)

        for part in (inform, tabulate, describe, self._write_run, draw):
            self.attempt(part)

        def write_images(folder: RunFolder) -> None:
            folder.write_images(self._prefix, "images", presenter().shown_samples(found.samples), step, epoch)
            folder.write_images(self._prefix, "diagnosis", presenter().shown_diagnosis(evaluation), step, epoch)

        self._write(write_images)
        self.unfinished = True
        self._write(self._write_page)

    def publish_alert(self, alert: Alert, about: str, since: float | None = None) -> None:
        """Warn, and send an alert to the loggers and the user's function.

        Args:
            alert: Title and text of the alert.
            about: Name of the area or other subject of the alert.
            since: First epoch of the fault, if it is an earlier one.
        """
        self.notes.add(alert.text, about, since)
        told = Alert(clean(alert.title), clean(alert.text))
        self._loggers.each(lambda x: x.log_alert(told, self.notes.step))
        if self._on_alert is not None:
            self.attempt(partial(self._on_alert, alert.text))

    def write_report(self) -> None:
        """Write the run's file with the notes, and the page, once this fit has an evaluation."""
        self.unfinished = True
        self.attempt(self._write_run)
        if self._parts is not None:
            self._write(self._write_page)

    def _write_run(self) -> None:
        if self._writes and self._parts is not None:
            self.folder.write_run(self._prefix, evaluations=self.evaluations, notes=self.notes.items, **self._parts)

    def finish(self, last: bool = False) -> None:
        """Send the page and flush the loggers; `last` is True at the end of a run."""
        step = int(self.evaluations[-1]["values"]["step"]) if last else self.notes.step
        page = self.page
        if page is not None:
            self._loggers.each(lambda x: x.log_page(page, step, last))
        self._loggers.each(lambda x: x.finish_evaluation(step))

    def answers(self) -> str:
        """Return the answers of the last evaluation that was written, as lines."""
        path = self.folder.path
        runs = read_run(path).monitors
        return "\n".join(closing(run, path, len(runs) == 1) for run in runs if run.prefix == self._prefix)

    def close(self) -> None:
        """Print the answers of the last evaluation."""
        say(f"{self.answers()}\n")

    def _write_page(self, folder: RunFolder) -> None:
        self.page = folder.write_report()

    def _publish_figures(self, figures: Mapping[str, Figure | Drawing], step: int, epoch: int | None) -> None:
        for name, figure in figures.items():
            self.attempt(partial(self._publish_figure, name, figure, step, epoch))

    def _publish_figure(self, name: str, figure: Figure | Drawing, step: int, epoch: int | None) -> None:
        png = render(figure)
        self._loggers.each(lambda x: x.log_figures({f"{self._prefix}/{name}": png}, step, epoch))
        if self._writes:  # after the loggers, which take a figure for which the disk has no room
            self.folder.write_figures(self._prefix, {name: png}, step, epoch)
            self.folder.write_vector(self._prefix, name, figure, step, epoch)

    def _write(self, write: Callable[[RunFolder], Any]) -> None:
        """Write into the folder, if files are written."""
        if self._writes:
            self.attempt(lambda: write(self.folder))

    def _log_table(self, tag: str, table: Table, step: int) -> None:
        self._loggers.each(lambda x: x.log_table(tag, table, step))

    def reset(self) -> None:
        """Begin a new run."""
        self.notes.reset()
        self.evaluations = []

    def forget_evaluations(self) -> None:
        """Start the curves over, in a new folder."""
        self.notes.forget_evaluations()
        self.evaluations = []

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain Python."""
        folder = {"evaluations": [dict(x) for x in self.evaluations], "folder": str(self.folder.path.absolute())}
        return {**self.notes.state_dict(), **folder}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state."""
        self.notes.load_state_dict(state)
        self.evaluations, self.folder = [dict(x) for x in state["evaluations"]], RunFolder(state["folder"])


def _specs(values: Iterable[str], declared: Sequence[ValueSpec]) -> list[ValueSpec]:
    """Return the declarations of existing values, in the order of the declarations."""
    known = by_key(declared)
    return [spec for spec in declared if spec.key in values] + [ValueSpec(key) for key in values if key not in known]


def finish_evaluations(publishers: Iterable[Publisher]) -> None:
    """Finish the evaluations of the monitors of a Trainer, and flush common loggers and page once."""
    unfinished = [publisher for publisher in publishers if publisher.unfinished]
    if unfinished:
        with preserve_rng():  # a logger may draw random numbers
            unfinished[-1].finish()
    for publisher in unfinished:
        publisher.unfinished = False


def finish_run(publishers: Iterable[Publisher]) -> None:
    """Send the last common page of monitors to loggers that did not get every page."""
    shown = [publisher for publisher in publishers if publisher.page is not None and publisher.evaluations]
    if shown:
        shown[-1].write_report()  # once more, since the checkpoint of the last evaluation is there now
        with preserve_rng():
            shown[-1].finish(last=True)


def _wrong(findings: Sequence[Finding]) -> list[str]:
    """Return the subjects of faults; an alert about any other subject is over."""
    return list(dict.fromkeys(x.area.name for x in findings if x.fine is False and x.verdict and not x.detail))


def print_reports(publishers: Iterable[Publisher]) -> None:
    """Print the results of each monitor in a few lines, and the path of each page once, since monitors share it."""
    publishers = list(publishers)
    for publisher in publishers:
        if publisher.page is not None and publisher.evaluations:
            publisher.attempt(publisher.close)
    for page in dict.fromkeys(publisher.page for publisher in publishers if publisher.page is not None):
        say(f"Report: {page}")
