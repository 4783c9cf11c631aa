# SPDX-License-Identifier: Apache-2.0
"""MLflow: pictures by step of the Trainer, and a folder of artifacts with the latest figures and the report."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genmonitor.loggers.backend import Backend
from genmonitor.report.files import FOLDER, file_stem


class MLflowBackend(Backend):
    """Backend of a logger whose experiment is an `MlflowClient`, which needs the run at each call."""

    @classmethod
    def handles(cls, logger: Any, experiment: Any) -> bool:
        """Return True if the client takes images for a run that the logger names."""
        return hasattr(experiment, "log_image") and hasattr(logger, "run_id")

    def log_figures(self, figures: Mapping[str, bytes], step: int, epoch: int | None) -> None:
        """Log figures of an epoch as images at the Trainer's step, others as artifacts named like their files."""
        from PIL import Image

        for tag, png in figures.items():
            picture = Image.open(io.BytesIO(png), formats=["PNG"])
            as_file = {"artifact_file": f"{FOLDER}/{file_stem(tag, step, epoch)}.png"}
            place = as_file if epoch is None else {"key": self.key(tag), "step": step}
            self.experiment.log_image(self.logger.run_id, picture, **place)

    def log_finding(self, tag: str, text: str, step: int) -> None:
        """Set a tag of the run, shown in the table of runs."""
        self.experiment.set_tag(self.logger.run_id, self.key(tag), text)

    def log_settings(self, prefix: str, settings: Mapping[str, Any]) -> None:
        """Set a parameter of the run for each setting."""
        for name, value in settings.items():
            # no MLflow refuses a parameter of 500 characters
            self.experiment.log_param(self.logger.run_id, f"{prefix}/{name}", str(value)[:500])

    def log_page(self, page: Path, step: int, last: bool = False) -> None:
        """Log the report as an artifact in the folder of the figures, where it replaces the one before."""
        self.experiment.log_artifact(self.logger.run_id, str(page), FOLDER)
