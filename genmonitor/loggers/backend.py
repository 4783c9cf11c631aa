# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: B027 - a backend does nothing with what its logger has no place for
"""Backends, one per kind of experiment logger, each in its own file in this folder.

A backend is chosen by the methods of `logger.experiment`, not by the logger's class, since `lightning` and
`pytorch_lightning` have unrelated logger classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from genmonitor.evaluation.results import Alert
from genmonitor.findings.tables import Table

_registered: list[type[Backend]] = []


class Backend(ABC):
    """Sends the output of monitors to one Lightning logger; defining a subclass registers it.

    A subclass implements `handles` and the `log_…` methods that its kind of experiment supports. The others do nothing,
    except that scalars go to `log_metrics`, which every Lightning logger has. Any method may raise: the user is warned
    once, and neither the training nor the other loggers are affected.

    Args:
        logger: Lightning logger that `handles` accepted.

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
        """Object that the logger writes to."""
        return self.logger.experiment

    def key(self, key: str) -> str:
        """Return a key as the logger writes it, with the user's prefix of Lightning's loggers."""
        prefix = getattr(self.logger, "_prefix", "")  # which has no public name
        return f"{prefix}{self.logger.LOGGER_JOIN_CHAR}{key}" if prefix else key

    @classmethod
    @abstractmethod
    def handles(cls, logger: Any, experiment: Any) -> bool:
        """Return True if this backend handles a logger, by the methods of its experiment."""

    def log_layout(self, prefix: str, charts: Mapping[str, Sequence[str]]) -> None:
        """Combine related values in charts. Called before the first scalar.

        Args:
            prefix: Prefix of the keys, for example ``cms``, and heading over the charts.
            charts: Keys without the prefix, by title; details (see `ValueSpec`) are in no chart.
        """

    def log_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log scalars immediately, independently of the Trainer's logging interval."""
        self.logger.log_metrics(dict(values), step=step)

    def log_figures(self, figures: Mapping[str, bytes], step: int, epoch: int | None) -> None:
        """Show figures.

        Args:
            figures: PNG files by tag, for example ``cms/samples``.
            step: Step of the Trainer, as for the scalars of the same evaluation.
            epoch: Epoch; None for a figure of which only the latest counts.
        """

    def log_table(self, tag: str, table: Table, step: int) -> None:
        """Show a table; its text comes from the user and must not act as markup."""

    def log_samples(self, tag: str, make: Callable[[], Table | None], step: int) -> None:
        """Show single samples with their readings; `make` returns them, or None at an evaluation without any."""

    def log_finding(self, tag: str, text: str, step: int) -> None:
        """Show the finding of an evaluation, in place of the one before; its text must not act as markup."""

    def log_alert(self, alert: Alert, step: int) -> None:
        """Raise an alert; its text may contain names from the user and must not act as markup."""

    def log_settings(self, prefix: str, settings: Mapping[str, Any]) -> None:
        """Log the settings of a monitor, by which runs can be compared.

        Args:
            prefix: Prefix of the monitor's keys.
            settings: Settings as plain Python, by name.
        """

    def log_page(self, page: Path, step: int, last: bool = False) -> None:
        """Replace the report; `last` is True at the end of a run, for a backend that keeps every report."""

    def finish_evaluation(self, step: int) -> None:
        """Flush collected data: the evaluations at a step, a fit, or a figure drawn later."""


class ScalarBackend(Backend):
    """Backend of any logger, for scalars alone."""

    @classmethod
    def handles(cls, logger: Any, experiment: Any) -> bool:
        """Return True, since it is the last backend to be asked."""
        return True


def find_backend(logger: Any) -> Backend:
    """Return the backend of a logger, the last one defined if several handle it."""
    experiment = getattr(logger, "experiment", None)
    return next(backend for backend in reversed(_registered) if backend.handles(logger, experiment))(logger)
