# SPDX-License-Identifier: Apache-2.0
"""What each check sends to a Trainer's loggers: scalars, figures, charts, tables and alerts.

Nothing here looks at the rank: call it on rank zero only.
"""

from __future__ import annotations

import io
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from genmonitor._io import atomic_write
from genmonitor.callbacks.each_logger import for_each, is_wandb, log_wandb, prefixed
from genmonitor.callbacks.tables import markdown_table, without_pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def log_figures(
    loggers: Iterable[Any], figures: Mapping[str, Figure], step: int, directory: Path, epoch: int | None = None
) -> dict[str, Path]:
    """Send figures to TensorBoard, W&B and MLflow, and always write them as PNG files too.

    Call on rank zero only.

    Args:
        loggers: ``trainer.loggers``.
        figures: tag, for example ``cms/samples``, to figure.
        step: the trainer's step, as for the scalars of this check.
        directory: where the PNG files go; made where it is missing.
        epoch: None for a figure of which only the latest is kept, ``cms_samples.png``; else a file for each check,
            ``cms_samples_epoch_0003_step_1200.png``.

    Returns:
        Tag to file.

    Raises:
        OSError: If the files cannot be written; the loggers have the figures by then.
    """
    suffix = "" if epoch is None else f"_epoch_{epoch:04d}_step_{step}"
    paths = {tag: directory / f"{_file_name(tag)}{suffix}.png" for tag in figures}
    pngs = {tag: _to_png(figure) for tag, figure in figures.items()}

    def send(logger: Any, experiment: Any) -> None:
        if hasattr(experiment, "add_figure"):
            for tag, figure in figures.items():
                experiment.add_figure(prefixed(logger, tag), figure, global_step=step, close=False)
        elif is_wandb(experiment):
            log_wandb(logger, experiment, {tag: _wandb_image(png, epoch) for tag, png in pngs.items()}, step)
        elif hasattr(experiment, "log_figure") and hasattr(logger, "run_id"):
            for tag, figure in figures.items():
                experiment.log_figure(logger.run_id, figure, paths[tag].name)

    for_each(loggers, send)
    directory.mkdir(parents=True, exist_ok=True)
    for tag, path in paths.items():
        atomic_write(path, pngs[tag])
    return paths


def log_scalars(loggers: Iterable[Any], values: Mapping[str, float], step: int) -> None:
    """Send scalars to each logger at once, whatever its interval. Call on rank zero only."""
    for_each(loggers, lambda logger, experiment: logger.log_metrics(dict(values), step=step))


def without_figures(loggers: Iterable[Any]) -> list[str]:
    """Name the loggers that take no figure, so that the files are all there is of them."""
    return [
        type(logger).__name__
        for logger in loggers
        if not (
            hasattr(experiment := getattr(logger, "experiment", None), "add_figure")
            or is_wandb(experiment)
            or hasattr(experiment, "log_figure")
        )
    ]


def log_series(
    loggers: Iterable[Any],
    tag: str,
    title: str,
    epochs: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    step: int,
) -> None:
    """Send curves as one line-series chart to W&B; the other loggers have the layout. Call on rank zero only.

    Args:
        loggers: ``trainer.loggers``.
        tag: the chart's key.
        title: its heading.
        epochs: one per check.
        curves: name to one value per check; nan is left out.
        step: the trainer's step.
    """

    def send(logger: Any, experiment: Any) -> None:
        if is_wandb(experiment):
            import wandb

            known = [
                [(e, v) for e, v in zip(epochs, curve, strict=True) if not math.isnan(v)] for curve in curves.values()
            ]
            xs, ys = [[e for e, _ in points] for points in known], [[v for _, v in points] for points in known]
            chart = wandb.plot.line_series(xs, ys, keys=list(curves), title=title, xname="epoch")
            log_wandb(logger, experiment, {tag: chart}, step)

    for_each(loggers, send)


def log_table(
    loggers: Iterable[Any], tag: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int, path: Path
) -> None:
    """Send a table to W&B with its pictures, to TensorBoard as text, and always write it as a JSON file too.

    Call on rank zero only.

    Args:
        loggers: ``trainer.loggers``.
        tag: the table's key.
        columns: their names.
        rows: cells: strings, which are shown as they are, whatever is in them; numbers; pictures, RGB uint8 (H, W, 3),
            which only W&B gets.
        step: the trainer's step.
        path: the JSON file, a list with one dictionary per row.
    """
    text_columns, text_rows = without_pictures(columns, rows)

    def send(logger: Any, experiment: Any) -> None:
        if hasattr(experiment, "add_text"):
            experiment.add_text(prefixed(logger, tag), markdown_table(text_columns, text_rows), global_step=step)
        elif is_wandb(experiment):
            import wandb
            from PIL import Image

            def cell(value: Any) -> Any:
                return wandb.Image(Image.fromarray(value)) if isinstance(value, np.ndarray) else value

            table = wandb.Table(columns=list(columns), data=[[cell(value) for value in row] for row in rows])
            log_wandb(logger, experiment, {tag: table}, step)

    for_each(loggers, send)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [dict(zip(text_columns, row, strict=True)) for row in text_rows]
    atomic_write(path, json.dumps(kept, indent=1).encode())


def log_alert(loggers: Iterable[Any], title: str, text: str, step: int | None = None) -> None:
    """Raise a W&B alert and leave a text in TensorBoard; elsewhere nothing. Call on rank zero only.

    Args:
        loggers: ``trainer.loggers``.
        title: one line; W&B takes the first 63 characters.
        text: plain text, shown as it is: Markdown and HTML in it have no effect in TensorBoard.
        step: the trainer's step.
    """

    def send(logger: Any, experiment: Any) -> None:
        if hasattr(experiment, "add_text"):
            as_code = textwrap.indent(f"{title}\n\n{text}", "    ")
            experiment.add_text(prefixed(logger, "alerts"), as_code, global_step=step)
        elif hasattr(experiment, "alert"):
            experiment.alert(title=title[:63], text=text, level="WARN")

    for_each(loggers, send)


def _wandb_image(png: bytes, epoch: int | None) -> Any:
    import wandb
    from PIL import Image

    return wandb.Image(Image.open(io.BytesIO(png)), caption=None if epoch is None else f"epoch {epoch}")


def _file_name(tag: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "_", tag).strip("_") or "figure"


def _to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=figure.dpi)
    return buffer.getvalue()
