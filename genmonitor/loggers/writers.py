# SPDX-License-Identifier: Apache-2.0
"""Writers that come without a logger of Lightning's around them: a `SummaryWriter`, or a run of W&B."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from genmonitor.loggers.wandb import STEP, WandbBackend


class Writer(ABC):
    """Takes scalars as Lightning's loggers do.

    Args:
        experiment: what is written to.
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
