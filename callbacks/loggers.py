# SPDX-License-Identifier: Apache-2.0
"""Figures, chart layout and alerts to each of a Trainer's loggers, by what its `experiment` can do.

Not by its class: `lightning` and `pytorch_lightning` have unrelated logger classes. Nothing here looks at the
rank: call it on rank zero only. A logger that raises is named in one warning and never stops the others.
"""

from __future__ import annotations

import io
import json
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from genmonitor.callbacks.files import write_whole
from genmonitor.callbacks.tables import markdown_table, without_pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What Lightning's W&B logger logs beside every scalar. wandb's own step is never given: it must not go backwards.
_WANDB_STEP = "trainer/global_step"

_warned: WeakSet[Any] = WeakSet()
# TensorBoard reads one layout per run: the monitors of a Trainer share it.
_layouts: WeakKeyDictionary[Any, dict[str, dict[str, list[Any]]]] = WeakKeyDictionary()


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
                experiment.add_figure(_prefixed(logger, tag), figure, global_step=step, close=False)
        elif _is_wandb(experiment):
            _log_wandb(logger, experiment, {tag: _wandb_image(png, epoch) for tag, png in pngs.items()}, step)
        elif hasattr(experiment, "log_figure") and hasattr(logger, "run_id"):
            for tag, figure in figures.items():
                experiment.log_figure(logger.run_id, figure, paths[tag].name)

    _for_each(loggers, send)
    directory.mkdir(parents=True, exist_ok=True)
    for tag, path in paths.items():
        write_whole(path, pngs[tag])
    return paths


def log_scalars(loggers: Iterable[Any], values: Mapping[str, float], step: int) -> None:
    """Send scalars to each logger at once, whatever its interval. Call on rank zero only."""
    _for_each(loggers, lambda logger, experiment: logger.log_metrics(dict(values), step=step))


def log_layout(loggers: Iterable[Any], prefix: str, charts: Mapping[str, Sequence[str]]) -> None:
    """Put scalars that belong together into one chart. Call once, on rank zero only, before the first scalar.

    TensorBoard gets a custom-scalars layout, W&B the trainer's step as the x-axis of all keys under ``prefix``.

    Args:
        loggers: ``trainer.loggers``.
        prefix: what the keys begin with, for example ``cms``; the heading over the charts.
        charts: title to full keys.
    """

    def send(logger: Any, experiment: Any) -> None:
        if hasattr(experiment, "add_custom_scalars"):
            layout = _layouts.setdefault(experiment, {})
            # TensorBoard takes them for patterns: cluster_1 would draw cluster_10 as well
            tags = {title: [f"^{re.escape(_prefixed(logger, key))}$" for key in keys] for title, keys in charts.items()}
            layout[prefix] = {title: ["Multiline", patterns] for title, patterns in tags.items()}
            experiment.add_custom_scalars(layout)
        elif _is_wandb(experiment):
            experiment.define_metric(_WANDB_STEP)
            experiment.define_metric(_prefixed(logger, f"{prefix}/*"), step_metric=_WANDB_STEP, step_sync=True)

    _for_each(loggers, send)


def log_about(loggers: Iterable[Any], prefix: str, about: Mapping[str, str]) -> None:
    """Say in TensorBoard's text tab what each value is.

    Args:
        loggers: ``trainer.loggers``.
        prefix: what the keys begin with; the text's tag is ``<prefix>/about``.
        about: name to what it says, in Markdown.
    """

    def send(logger: Any, experiment: Any) -> None:
        if hasattr(experiment, "add_text") and about:
            rows = [f"| `{_prefixed(logger, f'{prefix}/{name}')}` | {text} |" for name, text in about.items()]
            experiment.add_text(
                _prefixed(logger, f"{prefix}/about"), "\n".join(["| value | |", "| --- | --- |", *rows])
            )

    _for_each(loggers, send)


def log_descriptions(loggers: Iterable[Any], prefix: str, about: Mapping[str, str], names: Iterable[str]) -> None:
    """Give TensorBoard a description of each scalar, shown beside its chart. Call before the first value is logged.

    Args:
        loggers: ``trainer.loggers``.
        prefix: what the keys begin with.
        about: name to what it says; one that ends in … stands for all that begin so.
        names: of the scalars.
    """

    def send(logger: Any, experiment: Any) -> None:
        if not hasattr(experiment, "add_scalar") or not hasattr(experiment, "_get_file_writer"):
            return
        from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_SCALAR, Summary, SummaryMetadata

        plugin = SummaryMetadata.PluginData(plugin_name="scalars")
        for name, text in said.items():
            described = SummaryMetadata(summary_description=text, plugin_data=plugin, data_class=DATA_CLASS_SCALAR)
            value = Summary.Value(tag=_prefixed(logger, f"{prefix}/{name}"), metadata=described)  # and no number yet
            experiment._get_file_writer().add_summary(Summary(value=[value]), 0)

    families = {name.removesuffix("…"): text for name, text in about.items() if name.endswith("…")}
    said = {
        name: about.get(name) or next(text for start, text in families.items() if name.startswith(start))
        for name in names
        if name in about or name.startswith(tuple(families))
    }
    _for_each(loggers, send)


def without_figures(loggers: Iterable[Any]) -> list[str]:
    """Name the loggers that take no figure, so that the files are all there is of them."""
    return [
        type(logger).__name__
        for logger in loggers
        if not (
            hasattr(experiment := getattr(logger, "experiment", None), "add_figure")
            or _is_wandb(experiment)
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
        if _is_wandb(experiment):
            import wandb

            known = [
                [(e, v) for e, v in zip(epochs, curve, strict=True) if not math.isnan(v)] for curve in curves.values()
            ]
            xs, ys = [[e for e, _ in points] for points in known], [[v for _, v in points] for points in known]
            chart = wandb.plot.line_series(xs, ys, keys=list(curves), title=title, xname="epoch")
            _log_wandb(logger, experiment, {tag: chart}, step)

    _for_each(loggers, send)


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
            experiment.add_text(_prefixed(logger, tag), markdown_table(text_columns, text_rows), global_step=step)
        elif _is_wandb(experiment):
            import wandb
            from PIL import Image

            def cell(value: Any) -> Any:
                return wandb.Image(Image.fromarray(value)) if isinstance(value, np.ndarray) else value

            table = wandb.Table(columns=list(columns), data=[[cell(value) for value in row] for row in rows])
            _log_wandb(logger, experiment, {tag: table}, step)

    _for_each(loggers, send)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [dict(zip(text_columns, row, strict=True)) for row in text_rows]
    write_whole(path, json.dumps(kept, indent=1).encode())


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
            experiment.add_text(_prefixed(logger, "alerts"), as_code, global_step=step)
        elif hasattr(experiment, "alert"):
            experiment.alert(title=title[:63], text=text, level="WARN")

    _for_each(loggers, send)


def _for_each(loggers: Iterable[Any], send: Callable[[Any, Any], None]) -> None:
    for logger in loggers:
        try:
            send(logger, getattr(logger, "experiment", None))
        except Exception as error:
            if logger not in _warned:
                _warned.add(logger)
                warnings.warn(
                    f"{type(logger).__name__} did not take what was logged: {type(error).__name__}: {error}. "
                    "The other loggers and the PNG files are not affected; this is said once.",
                    stacklevel=3,
                )


def _is_wandb(experiment: Any) -> bool:
    return type(experiment).__module__.split(".")[0] == "wandb"


def _log_wandb(logger: Any, experiment: Any, values: Mapping[str, Any], step: int) -> None:
    experiment.log({**{_prefixed(logger, key): value for key, value in values.items()}, _WANDB_STEP: step})


def _wandb_image(png: bytes, epoch: int | None) -> Any:
    import wandb
    from PIL import Image

    return wandb.Image(Image.open(io.BytesIO(png)), caption=None if epoch is None else f"epoch {epoch}")


def _prefixed(logger: Any, key: str) -> str:
    """The key as the logger writes it: Lightning's loggers take a prefix of the user's own."""
    prefix = getattr(logger, "_prefix", "")
    return f"{prefix}{logger.LOGGER_JOIN_CHAR}{key}" if prefix else key


def _file_name(tag: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "_", tag).strip("_") or "figure"


def _to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=figure.dpi)
    return buffer.getvalue()
