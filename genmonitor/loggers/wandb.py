# SPDX-License-Identifier: Apache-2.0
"""Weights & Biases: images, tables with pictures, line series and alerts, over the trainer's step."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from genmonitor.evaluation.results import Alert, LineSeries, Table
from genmonitor.loggers.backend import Backend
from genmonitor.report.figures import RenderedFigure

STEP = "trainer/global_step"
"""What Lightning's W&B logger logs beside every scalar. wandb's own step is never given: it must not go backwards."""
_MAX_TITLE = 63  # wandb refuses longer titles of alerts


class WandbBackend(Backend):
    """A logger whose experiment is a run of W&B."""

    @classmethod
    def handles(cls, logger: Any, experiment: Any) -> bool:
        """Say whether it is a run of W&B: what it logs are wandb's own objects, which nothing else takes."""
        return type(experiment).__module__.split(".")[0] == "wandb" and hasattr(experiment, "log")

    def log_layout(self, prefix: str, charts: Mapping[str, Sequence[str]]) -> None:
        """Make the trainer's step the x-axis of all values under a prefix."""
        self.experiment.define_metric(STEP)
        self.experiment.define_metric(self.key(f"{prefix}/*"), step_metric=STEP, step_sync=True)

    def log_figures(self, figures: Mapping[str, RenderedFigure], step: int, epoch: int | None) -> None:
        """Log figures as images, with the epoch below each."""
        import wandb
        from PIL import Image

        caption = None if epoch is None else f"epoch {epoch}"
        images = {
            tag: wandb.Image(Image.open(io.BytesIO(figure.png)), caption=caption) for tag, figure in figures.items()
        }
        self._log(images, step)

    def log_line_series(self, tag: str, series: LineSeries, step: int) -> None:
        """Log curves as one chart, without the points that are NaN."""
        import wandb

        known = [
            [(epoch, value) for epoch, value in zip(series.epochs, curve, strict=True) if not math.isnan(value)]
            for curve in series.curves.values()
        ]
        xs, ys = [[x for x, _ in points] for points in known], [[y for _, y in points] for points in known]
        chart = wandb.plot.line_series(xs, ys, keys=list(series.curves), title=series.title, xname="epoch")
        self._log({tag: chart}, step)

    def log_table(self, tag: str, table: Table, step: int) -> None:
        """Log a table with its pictures."""
        import wandb
        from PIL import Image

        def cell(value: Any) -> Any:
            return wandb.Image(Image.fromarray(value)) if isinstance(value, np.ndarray) else value

        rows = [[cell(value) for value in row] for row in table.rows]
        self._log({tag: wandb.Table(columns=list(table.columns), data=rows)}, step)

    def log_alert(self, alert: Alert, step: int) -> None:
        """Raise an alert, which W&B sends to whoever asked for them."""
        self.experiment.alert(title=alert.title[:_MAX_TITLE], text=alert.text, level="WARN")

    def _log(self, values: Mapping[str, Any], step: int) -> None:
        self.experiment.log({**{self.key(tag): value for tag, value in values.items()}, STEP: step})
