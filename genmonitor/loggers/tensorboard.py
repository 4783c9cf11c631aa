# SPDX-License-Identifier: Apache-2.0
"""TensorBoard: figures, texts, and a layout with several curves in one chart.

The report has its own tab there, see `genmonitor.tensorboard_plugin`.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from genmonitor._io import printable
from genmonitor.evaluation.results import Alert
from genmonitor.loggers.backend import Backend

# TensorBoard reads one layout per run: the monitors of a Trainer share it.
_layouts: WeakKeyDictionary[Any, dict[str, dict[str, list[Any]]]] = WeakKeyDictionary()


class TensorBoardBackend(Backend):
    """Backend of a logger whose experiment is a `SummaryWriter` or has its methods."""

    @classmethod
    def handles(cls, logger: Any, experiment: Any) -> bool:
        """Return True if it has the methods of a `SummaryWriter` for figures and texts."""
        return hasattr(experiment, "add_figure") and hasattr(experiment, "add_text")

    def log_layout(self, prefix: str, charts: Mapping[str, Sequence[str]]) -> None:
        """Combine related values in charts of the tab of custom scalars."""
        if not hasattr(self.experiment, "add_custom_scalars"):
            return
        layout = _layouts.setdefault(self.experiment, {})
        layout[prefix] = {
            # TensorBoard takes tags for patterns: cluster_1 would draw cluster_10 as well
            title: ["Multiline", [f"^{re.escape(self.key(f'{prefix}/{name}'))}$" for name in names]]
            for title, names in charts.items()
        }
        self.experiment.add_custom_scalars(layout)

    def log_figures(self, figures: Mapping[str, bytes], step: int, epoch: int | None) -> None:
        """Add figures as images, since `add_figure` would draw them again."""
        from PIL import Image

        for tag, png in figures.items():
            with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
                pixels = np.asarray(picture.convert("RGB"))
            self.experiment.add_image(self.key(tag), pixels, global_step=step, dataformats="HWC")

    def log_finding(self, tag: str, text: str, step: int) -> None:
        """Add a text with each line as a paragraph."""
        lines = [as_markdown(line) for line in text.splitlines()]
        self.experiment.add_text(self.key(tag), "\n\n".join(lines), global_step=step)

    def log_alert(self, alert: Alert, step: int) -> None:
        """Add a text under ``alerts``, as code that Markdown shows literally."""
        as_code = textwrap.indent(f"{alert.title}\n\n{alert.text}", "    ")
        self.experiment.add_text(self.key("alerts"), as_code, global_step=step)


def as_markdown(text: str) -> str:
    """Escape text so that Markdown shows it literally, without effect of Markdown or HTML.

    Every ASCII character except letters, digits and spaces becomes its HTML entity, which both leave unchanged.
    Characters that cannot be printed, such as marks of the writing direction, become the replacement character.

    Example:
        >>> as_markdown("<b>*a cat*")
        '&#60;b&#62;&#42;a cat&#42;'
    """
    line = printable(" ".join(text.split()))
    return "".join(f"&#{ord(c)};" if c.isascii() and not c.isalnum() and c != " " else c for c in line)
