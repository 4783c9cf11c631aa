# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows of a monitor: its last evaluation."""

from __future__ import annotations

import html
import sys
from typing import TYPE_CHECKING

from genmonitor._html import heading_html, png_html, values_html
from genmonitor.evaluation.evaluator import NotFittedError

if TYPE_CHECKING:
    from genmonitor.monitoring.base import Monitor


def monitor_html(monitor: Monitor) -> str:
    """Return the last evaluation of a monitor: its table, the latest figures, and a link to the report."""
    name, count = f"{type(monitor).__name__} {monitor.prefix}", len(monitor.history)
    if not count:
        return heading_html(name, "before its first evaluation")
    try:
        table = monitor.evaluator.presenter().summary_html(monitor.findings, monitor.history)
    except NotFittedError:  # loaded from a checkpoint: what it is fitted to comes with training
        table = values_html(monitor.history[-1])
    evaluations = "1 evaluation" if count == 1 else f"{count} evaluations"
    figures = "".join(f"<div>{png_html(png, figure)}</div>" for figure, png in monitor.publisher.latest.items())
    return heading_html(name, evaluations) + table + figures + _link(monitor)


def show(monitor: Monitor) -> None:
    """Show a monitor in a notebook, also from within a loop; elsewhere print its table and where the report is."""
    if _in_notebook():
        from IPython.display import display

        display(monitor)
        return
    print(monitor.summary() if monitor.history else repr(monitor))
    if monitor.publisher.page is not None:
        print(f"Report: {monitor.publisher.page}")


def _in_notebook() -> bool:
    """Say whether this is a notebook, and not IPython in a terminal, which shows no pictures."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _link(monitor: Monitor) -> str:
    page = monitor.publisher.page
    return "" if page is None else f"<p>Report: <code>{html.escape(str(page))}</code></p>"
