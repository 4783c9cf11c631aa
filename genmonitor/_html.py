# SPDX-License-Identifier: Apache-2.0
"""HTML for notebooks: self-contained tables and pictures."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from genmonitor._formatting import short
from genmonitor._places import cluster_color, colorize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL = "text-align:left;padding:1px 12px 1px 0;white-space:nowrap"


def text_html(text: str) -> str:
    """Return literal text, line by line.

    >>> text_html("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{html.escape(text)}</pre>"


def heading_html(text: str, note: str = "") -> str:
    """Return a line in bold, followed by a note in plain type.

    >>> heading_html("1 < 2", "always")
    '<p><b>1 &lt; 2</b> always</p>'
    """
    return f"<p><b>{html.escape(text)}</b>{f' {html.escape(note)}' if note else ''}</p>"


def table_html(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    labels: Mapping[str, int] | None = None,
    bad: Collection[str] = (),
) -> str:
    """Return a table; the row of a region begins with a mark of its color.

    Args:
        columns: Names of the columns.
        rows: Rows of text and numbers, each beginning with its subject.
        labels: Labels of the regions among the rows.
        bad: Rows to set in bold.
    """
    head = "".join(f'<th style="{_CELL}">{html.escape(name)}</th>' for name in columns)
    lines = []
    for name, *cells in rows:
        mark = ""
        if labels and name in labels:
            mark = f'<span style="color:{cluster_color(labels[name])}">&#9632;</span> '
        weight = ";font-weight:bold" if name in bad else ""
        first = f"{mark}{html.escape(str(name))}"
        told = [first, *(html.escape(str(cell)) for cell in cells)]
        lines.append("<tr>" + "".join(f'<td style="{_CELL}{weight}">{cell}</td>' for cell in told) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def values_html(values: Mapping[str, Any]) -> str:
    """Return values by name as a table, numbers with six digits.

    Args:
        values: Numbers, or tensors; those with several numbers are shown by their shape.
    """
    return table_html(["name", "value"], [[name, short(value)] for name, value in values.items()])


def figure_html(figure: Figure, description: str) -> str:
    """Return a figure as a picture.

    >>> from matplotlib.figure import Figure
    >>> figure_html(Figure((1, 1)), "nothing")[:49]
    '<img alt="nothing" src="data:image/png;base64,iVB'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return png_html(buffer.getvalue(), description)


def png_html(png: bytes, description: str) -> str:
    """Return a PNG file as a picture, at most as wide as the page."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f'<img alt="{html.escape(description)}" src="{source}" style="max-width:100%">'


def page_html(page: str, title: str) -> str:
    """Return a whole page inside another, with its own scripts.

    >>> page_html("<p>", "run")[:60]
    '<iframe title="run" sandbox="allow-scripts allow-downloads" '
    """
    place = 'style="width:100%;height:900px;border:0"'
    sandbox = 'sandbox="allow-scripts allow-downloads"'
    return f'<iframe title="{html.escape(title)}" {sandbox} {place} srcdoc="{html.escape(page)}"></iframe>'


def map_html(labels: Tensor) -> str:
    """Return a map of the regions as a picture, in the same colors as in every figure.

    Args:
        labels: Labels [h, w], integers, 0 for constant sites.
    """
    from PIL import Image

    height, width = labels.shape
    scale = 160 / max(height, width)  # pixels of the page
    buffer = io.BytesIO()
    Image.fromarray((255 * colorize(labels.numpy(force=True))).round().astype(np.uint8)).save(buffer, format="png")
    size = f"width:{round(width * scale)}px;height:{round(height * scale)}px;image-rendering:pixelated"
    return png_html(buffer.getvalue(), "map of the regions").replace("max-width:100%", size)


def columns_html(left: str, right: str) -> str:
    """Put two parts side by side, if the page is wide enough."""
    place = "display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start;overflow-x:auto"
    return f'<div style="{place}"><div>{left}</div><div>{right}</div></div>'
