# SPDX-License-Identifier: Apache-2.0
"""What loggers are told once: which values share a chart, and what each of them says.

Nothing here looks at the rank: call it on rank zero only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from genmonitor.callbacks.each_logger import WANDB_STEP, for_each, is_wandb, prefixed

# TensorBoard reads one layout per run: the monitors of a Trainer share it.
_layouts: WeakKeyDictionary[Any, dict[str, dict[str, list[Any]]]] = WeakKeyDictionary()


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
            tags = {title: [f"^{re.escape(prefixed(logger, key))}$" for key in keys] for title, keys in charts.items()}
            layout[prefix] = {title: ["Multiline", patterns] for title, patterns in tags.items()}
            experiment.add_custom_scalars(layout)
        elif is_wandb(experiment):
            experiment.define_metric(WANDB_STEP)
            experiment.define_metric(prefixed(logger, f"{prefix}/*"), step_metric=WANDB_STEP, step_sync=True)

    for_each(loggers, send)


def log_about(loggers: Iterable[Any], prefix: str, about: Mapping[str, str]) -> None:
    """Say in TensorBoard's text tab what each value is.

    Args:
        loggers: ``trainer.loggers``.
        prefix: what the keys begin with; the text's tag is ``<prefix>/about``.
        about: name to what it says, in Markdown.
    """

    def send(logger: Any, experiment: Any) -> None:
        if hasattr(experiment, "add_text") and about:
            rows = [f"| `{prefixed(logger, f'{prefix}/{name}')}` | {text} |" for name, text in about.items()]
            experiment.add_text(prefixed(logger, f"{prefix}/about"), "\n".join(["| value | |", "| --- | --- |", *rows]))

    for_each(loggers, send)


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
            value = Summary.Value(tag=prefixed(logger, f"{prefix}/{name}"), metadata=described)  # and no number yet
            experiment._get_file_writer().add_summary(Summary(value=[value]), 0)

    families = {name.removesuffix("…"): text for name, text in about.items() if name.endswith("…")}
    said = {
        name: about.get(name) or next(text for start, text in families.items() if name.startswith(start))
        for name in names
        if name in about or name.startswith(tuple(families))
    }
    for_each(loggers, send)
