# SPDX-License-Identifier: Apache-2.0
"""MLflow: figures as artifacts of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genmonitor.loggers.backend import Backend
from genmonitor.report.figures import RenderedFigure
from genmonitor.report.files import file_stem


class MLflowBackend(Backend):
    """A logger whose experiment is an `MlflowClient`, which is told the run at each call."""

    @classmethod
    def handles(cls, logger: Any, experiment: Any) -> bool:
        """Say whether it takes figures for a run that the logger names."""
        return hasattr(experiment, "log_figure") and hasattr(logger, "run_id")

    def log_figures(self, figures: Mapping[str, RenderedFigure], step: int, epoch: int | None) -> None:
        """Log figures under the names of their files."""
        for tag, figure in figures.items():
            self.experiment.log_figure(self.logger.run_id, figure.figure, f"{file_stem(tag, step, epoch)}.png")
