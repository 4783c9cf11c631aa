# SPDX-License-Identifier: Apache-2.0
"""All loggers of a run behind one object; no logger can stop the others or the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakSet

from genmonitor._io import say, warn
from genmonitor.loggers.backend import Backend, find_backend
from genmonitor.loggers.wandb import STEP, WandbBackend

_warned: WeakSet[Any] = WeakSet()


class Loggers:
    """Loggers of a run, each with its `Backend`.

    A logger that raises is named in one warning and skipped in that call. Use it on rank zero only.

    Args:
        loggers: Loggers, such as ``trainer.loggers``.
    """

    def __init__(self, loggers: Iterable[Any]) -> None:
        self._loggers = list(loggers)
        self._backends: dict[int, Backend] = {}

    def each(self, send: Callable[[Backend], None]) -> None:
        """Call a function with the backend of each logger; one that raises stops neither the others nor the run."""
        for logger in self._loggers:
            try:
                if id(logger) not in self._backends:  # not in the constructor, since creating an experiment may raise
                    self._backends[id(logger)] = find_backend(logger)
                send(self._backends[id(logger)])
            except Exception as error:
                if logger not in _warned:
                    _warned.add(logger)
                    say(
                        f"{type(logger).__name__} did not take what was logged: {type(error).__name__}: {error}. "
                        "The other loggers and the files of the run are not affected. This warning is shown once.",
                        warn,
                    )


class Writer:
    """A `SummaryWriter` or a run of W&B with the interface of Lightning's loggers for scalars.

    Args:
        experiment: `SummaryWriter` or run of W&B.
    """

    def __init__(self, experiment: Any) -> None:
        self.experiment = experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log scalars. For W&B their step is a value, since wandb's own step must not decrease."""
        if hasattr(self.experiment, "add_scalar"):
            for name, value in metrics.items():
                self.experiment.add_scalar(name, value, step)
            self.experiment.flush()  # there may be no other output for an hour
        else:
            self.experiment.log({**metrics, STEP: step})


def as_logger(given: Any) -> Any:
    """Return a logger for a `SummaryWriter` or a run of W&B, also from a tracker of accelerate.

    Args:
        given: One of these, or a logger of Lightning or Fabric, which is returned unchanged.

    Raises:
        TypeError: If it is something else.

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
    if WandbBackend.handles(None, experiment) or hasattr(experiment, "add_scalar"):
        return Writer(experiment)
    raise TypeError(
        "Expected `loggers` to hold a torch.utils.tensorboard.SummaryWriter, a run of wandb.init(), a logger of "
        f"Lightning's or Fabric's or a tracker of accelerate's, but got {type(given).__name__}."
    )
