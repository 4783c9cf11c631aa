# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: B027 - a backend does nothing with what its logger has no place for
"""Backends: one per kind of experiment logger, each in a file of its own in this folder.

A backend is chosen by what `logger.experiment` can do, not by the logger's class: `lightning` and `pytorch_lightning`
have unrelated logger classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genmonitor.evaluation.results import Alert
from genmonitor.findings.tables import Table
from genmonitor.findings.values import ValueSpec

_registered: list[type[Backend]] = []


class Backend(ABC):
    """Sends what monitors publish to one Lightning logger; a subclass registers itself by being defined.

    A subclass implements `handles` and whichever `log_…` methods its kind of experiment has a place for. The others do
    nothing, but that scalars go to `log_metrics`, which every Lightning logger has. Any method may raise: the user is
    warned once, and neither training nor the other loggers are affected.

    Args:
        logger: A Lightning logger that `handles` accepted.

    Example:
        A backend for a logger whose experiment has a method `send_text`:

        >>> class Notebook(Backend):
        ...     @classmethod
        ...     def handles(cls, logger, experiment):
        ...         return hasattr(experiment, "send_text")
        ...
        ...     def log_alert(self, alert, step):
        ...         self.experiment.send_text(f"step {step}: {alert.title}")
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _registered.append(cls)

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    @property
    def experiment(self) -> Any:
        """The object that the logger writes to."""
        return self.logger.experiment

    def key(self, key: str) -> str:
        """Return a key as the logger writes it: Lightning's loggers put a prefix of the user's before it."""
        prefix = getattr(self.logger, "_prefix", "")  # which has no public name
        return f"{prefix}{self.logger.LOGGER_JOIN_CHAR}{key}" if prefix else key

    @classmethod
    @abstractmethod
    def handles(cls, logger: Any, experiment: Any) -> bool:
        """Return whether this backend serves a logger, by the methods of its experiment."""

    def log_layout(self, prefix: str, charts: Mapping[str, Sequence[str]]) -> None:
        """Put values that belong together into one chart. Called before the first scalar.

        Args:
            prefix: What the keys begin with, for example ``cms``: the heading over the charts.
            charts: Title to keys without the prefix; details, see `ValueSpec`, are in none.
        """

    def describe_values(self, prefix: str, values: Sequence[ValueSpec]) -> None:
        """Describe scalars. Called before the first value of each.

        Args:
            prefix: What the keys begin with.
            values: Declarations, whose keys are without the prefix.
        """

    def log_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log scalars at once, whatever the logging interval of the Trainer."""
        self.logger.log_metrics(dict(values), step=step)

    def log_figures(self, figures: Mapping[str, bytes], step: int, epoch: int | None) -> None:
        """Show figures.

        Args:
            figures: Tag, for example ``cms/samples``, to the PNG file.
            step: The trainer's, as for the scalars of the same evaluation.
            epoch: None for a figure of which only the latest counts.
        """

    def log_table(self, tag: str, table: Table, step: int) -> None:
        """Show a table; its text is the user's, so nothing in it may act as markup."""

    def log_finding(self, tag: str, text: str, step: int) -> None:
        """Show what an evaluation found, in place of the evaluation before; nothing in the text may act as markup."""

    def log_alert(self, alert: Alert, step: int) -> None:
        """Raise an alert; its text may hold names of the user's, so nothing in it may act as markup."""

    def log_settings(self, prefix: str, settings: Mapping[str, Any]) -> None:
        """Say with which settings a monitor evaluates, so that runs can be compared by them.

        Args:
            prefix: What the keys of the monitor begin with.
            settings: Plain Python by name.
        """

    def log_page(self, page: Path, step: int, last: bool = False) -> None:
        """Replace the report that is shown; `last` is True at the end of a run, for a backend that keeps each."""

    def finish_evaluation(self, step: int) -> None:
        """Flush what is collected: the evaluations at a step, a fit, or a figure drawn later."""


class ScalarBackend(Backend):
    """Any logger: scalars alone."""

    @classmethod
    def handles(cls, logger: Any, experiment: Any) -> bool:
        """Return True: of all backends it is asked last."""
        return True


def find_backend(logger: Any) -> Backend:
    """Return the backend of a logger, the one defined last if several handle it."""
    experiment = getattr(logger, "experiment", None)
    return next(backend for backend in reversed(_registered) if backend.handles(logger, experiment))(logger)
