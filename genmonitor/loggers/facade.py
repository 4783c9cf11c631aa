# SPDX-License-Identifier: Apache-2.0
"""All loggers of a run behind one object, of which none can stop the others or the run."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

from genmonitor._io import say
from genmonitor.evaluation.results import Alert, Table
from genmonitor.evaluation.values import ValueSpec
from genmonitor.loggers.backend import Backend, find_backend
from genmonitor.loggers.wandb import STEP, WandbBackend
from genmonitor.report.figures import RenderedFigure

_warned: WeakSet[Any] = WeakSet()


class Loggers:
    """Sends the same to every logger, in the way that each takes it; the methods are those of `Backend`.

    A logger that raises is named in one warning and left out of that call. Use it on rank zero only.

    Args:
        loggers: ``trainer.loggers``.
    """

    def __init__(self, loggers: Iterable[Any]) -> None:
        self._loggers = list(loggers)
        self._backends: dict[int, Backend | None] = {}

    def without_figures(self) -> list[str]:
        """Name the loggers that take no figure, so that the files are all there is of them."""
        names: list[str] = []

        def ask(logger: Any) -> None:
            backend = self._backend(logger)
            if backend is None or not backend.takes_figures:
                names.append(type(logger).__name__)

        self._each_logger(ask)
        return names

    def log_scalars(self, values: Mapping[str, float], step: int) -> None:
        """See `Backend.log_scalars`; a logger without a backend gets them too."""

        def to_logger(logger: Any) -> None:
            backend = self._backend(logger)
            if backend is None:
                logger.log_metrics(dict(values), step=step)
            else:
                backend.log_scalars(values, step)

        self._each_logger(to_logger)

    def log_layout(self, prefix: str, charts: Mapping[str, Sequence[str]]) -> None:
        """See `Backend.log_layout`."""
        self._each_backend(lambda backend: backend.log_layout(prefix, charts))

    def log_about(self, prefix: str, about: Mapping[str, str]) -> None:
        """See `Backend.log_about`."""
        self._each_backend(lambda backend: backend.log_about(prefix, about))

    def describe_values(self, prefix: str, values: Sequence[ValueSpec]) -> None:
        """See `Backend.describe_values`."""
        self._each_backend(lambda backend: backend.describe_values(prefix, values))

    def log_figures(self, figures: Mapping[str, RenderedFigure], step: int, epoch: int | None = None) -> None:
        """See `Backend.log_figures`."""
        self._each_backend(lambda backend: backend.log_figures(figures, step, epoch))

    def log_table(self, tag: str, table: Table, step: int) -> None:
        """See `Backend.log_table`."""
        self._each_backend(lambda backend: backend.log_table(tag, table, step))

    def log_finding(self, tag: str, text: str, step: int) -> None:
        """See `Backend.log_finding`."""
        self._each_backend(lambda backend: backend.log_finding(tag, text, step))

    def log_alert(self, alert: Alert, step: int) -> None:
        """See `Backend.log_alert`."""
        self._each_backend(lambda backend: backend.log_alert(alert, step))

    def log_page(self, page: Path, step: int) -> None:
        """See `Backend.log_page`."""
        self._each_backend(lambda backend: backend.log_page(page, step))

    def finish_evaluation(self, step: int) -> None:
        """See `Backend.finish_evaluation`."""
        self._each_backend(lambda backend: backend.finish_evaluation(step))

    def _each_backend(self, send: Callable[[Backend], None]) -> None:
        def to_backend(logger: Any) -> None:
            backend = self._backend(logger)
            if backend is not None:
                send(backend)

        self._each_logger(to_backend)

    def _each_logger(self, send: Callable[[Any], None]) -> None:
        for logger in self._loggers:
            try:
                send(logger)
            except Exception as error:
                if logger not in _warned:
                    _warned.add(logger)
                    say(
                        f"{type(logger).__name__} did not take what was logged: {type(error).__name__}: {error}. "
                        "The other loggers and the files of the run are not affected. This warning is shown once.",
                        warnings.warn,
                    )

    def _backend(self, logger: Any) -> Backend | None:
        if id(logger) not in self._backends:  # not in the constructor: what makes an experiment may raise
            self._backends[id(logger)] = find_backend(logger)
        return self._backends[id(logger)]


class Writer(ABC):
    """A `SummaryWriter` or a run of W&B without a logger of Lightning's around it: takes scalars as these loggers do.

    Args:
        experiment: the `SummaryWriter` or the run.
    """

    def __init__(self, experiment: Any) -> None:
        self.experiment = experiment

    @abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log scalars."""


class TensorBoardWriter(Writer):
    """A `SummaryWriter`."""

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Add a point to each curve."""
        for name, value in metrics.items():
            self.experiment.add_scalar(name, value, step)
        self.experiment.flush()  # nobody else may write for an hour


class WandbWriter(Writer):
    """A run of W&B."""

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log scalars over the step that they name: wandb's own must not go backwards."""
        self.experiment.log({**metrics, STEP: step})


def as_logger(given: Any) -> Any:
    """Return a logger: a `SummaryWriter` or a run of W&B in one, also as a tracker of accelerate's.

    Args:
        given: one of these, or a logger of Lightning's or Fabric's, which is returned as it is.

    Raises:
        TypeError: if it is something else.

    Example:
        >>> class Recorder:
        ...     def add_scalar(self, name, value, step):
        ...         print(name, value, step)
        ...
        ...     def flush(self):
        ...         pass
        >>> as_logger(Recorder()).log_metrics({"cms/image": 0.5}, step=3)
        cms/image 0.5 3
    """
    if hasattr(given, "log_metrics"):
        return given
    experiment = getattr(given, "tracker", given)
    if WandbBackend.handles(None, experiment):
        return WandbWriter(experiment)
    if hasattr(experiment, "add_scalar"):
        return TensorBoardWriter(experiment)
    raise TypeError(
        "Expected `loggers` to hold a torch.utils.tensorboard.SummaryWriter, a run of wandb.init(), a logger of "
        f"Lightning's or Fabric's or a tracker of accelerate's, but got {type(given).__name__}."
    )
