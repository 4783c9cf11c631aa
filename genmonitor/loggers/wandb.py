# SPDX-License-Identifier: Apache-2.0
"""Weights & Biases: scalars, images, tables with pictures, the report and alerts, over the Trainer's step."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from genmonitor.evaluation.results import Alert
from genmonitor.findings.tables import Table
from genmonitor.loggers.backend import Backend

STEP = "trainer/global_step"
"""Key that Lightning's W&B logger logs with every scalar. wandb's own step is not used, since it must not decrease."""
_begun: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # the step of a run's open row, which its monitors share


_pages: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()  # how many there were, and the last one sent


class WandbBackend(Backend):
    """Backend of a logger whose experiment is a run of W&B; an evaluation is one row of its history."""

    @classmethod
    def handles(cls, logger: Any, experiment: Any) -> bool:
        """Return True for a run of W&B, since the logged objects are specific to wandb."""
        return type(experiment).__module__.split(".")[0] == "wandb" and hasattr(experiment, "log")

    def log_layout(self, prefix: str, charts: Mapping[str, Sequence[str]]) -> None:
        """Make the Trainer's step the x-axis of all values under a prefix."""
        self.experiment.define_metric(STEP)
        self.experiment.define_metric(self.key(f"{prefix}/*"), step_metric=STEP, step_sync=True)

    def log_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log scalars in the same row as the rest of their evaluation."""
        self._log(values, step)

    def log_figures(self, figures: Mapping[str, bytes], step: int, epoch: int | None) -> None:
        """Log figures of 256 colors or as JPEG, since W&B keeps those of all evaluations, with the epoch below each."""
        import wandb
        from PIL import Image

        caption = None if epoch is None else f"epoch {epoch}"
        for tag, png in figures.items():
            picture = Image.open(io.BytesIO(png), formats=["PNG"]).convert("RGB")
            with TemporaryDirectory() as folder:  # given a picture rather than a file, wandb writes larger ones
                paths = Path(folder, "figure.png"), Path(folder, "figure.jpg")
                picture.quantize(256).save(paths[0], optimize=True)
                picture.save(paths[1], quality=50)  # letters stay sharp
                path = min(paths, key=lambda path: path.stat().st_size)
                self._log({tag: wandb.Image(str(path), caption=caption)}, step)

    def log_table(self, tag: str, table: Table, step: int) -> None:
        """Log a table with its pictures, as JPEG: as PNG those of a run's samples would take many times the room."""
        import wandb
        from PIL import Image

        def cell(value: Any) -> Any:
            if isinstance(value, float):
                return float(f"{value:.4g}")  # further digits are half of the file
            return wandb.Image(Image.fromarray(value), file_type="jpg") if isinstance(value, np.ndarray) else value

        rows = [[cell(value) for value in row] for row in table.rows]
        self._log({tag: wandb.Table(columns=list(table.columns), data=rows)}, step)

    def log_samples(self, tag: str, make: Callable[[], Table | None], step: int) -> None:
        """Log them as a table, which W&B sorts and filters by any reading."""
        table = make()
        if table is not None:
            self.log_table(tag, table.cleaned(), step)

    def log_finding(self, tag: str, text: str, step: int) -> None:
        """Add the finding to the row of the evaluation and to the run's summary, shown in the table of runs."""
        self._log({tag: text}, step)

    def log_alert(self, alert: Alert, step: int) -> None:
        """Raise an alert, which W&B sends to its subscribers."""
        self.experiment.alert(title=alert.title[:63], text=alert.text, level="WARN")  # it refuses longer ones

    def log_settings(self, prefix: str, settings: Mapping[str, Any]) -> None:
        """Add the settings to the run's config, by which runs are filtered and grouped."""
        named = {f"{prefix}/{name}": value for name, value in settings.items()}
        self.experiment.config.update(named, allow_val_change=True)

    def log_page(self, page: Path, step: int, last: bool = False) -> None:
        """Log the report as unchanged HTML, since wandb's additions would make its links open elsewhere.

        W&B keeps every page, up to two megabytes each. It therefore gets those of evaluations 1, 16, 256 and so on,
        and the last.
        """
        import wandb

        count, sent = _pages.get(self.experiment, (0, 0))
        count += not last
        if count > sent if last else count >= 16 * sent:
            self._log({"genmonitor/report": wandb.Html(str(page), inject=False)}, step)
            sent = count
        _pages[self.experiment] = count, sent

    def finish_evaluation(self, step: int) -> None:
        """End the row, if there is one."""
        if _begun.pop(self.experiment, None) is not None:
            self.experiment.log({STEP: step}, commit=True)

    def _log(self, values: Mapping[str, Any], step: int) -> None:
        if _begun.get(self.experiment, step) != step:
            self.finish_evaluation(_begun[self.experiment])
        self.experiment.log({**{self.key(tag): value for tag, value in values.items()}, STEP: step}, commit=False)
        _begun[self.experiment] = step
