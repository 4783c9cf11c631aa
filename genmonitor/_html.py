# SPDX-License-Identifier: Apache-2.0
"""HTML for notebooks: text, pictures and pages."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def text_html(text: str) -> str:
    """Return literal text, line by line.

    >>> text_html("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{html.escape(text)}</pre>"


def figure_html(figure: Figure, description: str) -> str:
    """Return a figure as a picture.

    >>> from matplotlib.figure import Figure
    >>> figure_html(Figure((1, 1)), "nothing")[:49]
    '<img alt="nothing" src="data:image/png;base64,iVB'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    source = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return f'<img alt="{html.escape(description)}" src="{source}" style="max-width:100%">'


def page_html(page: str, title: str) -> str:
    """Return a whole page inside another, with its own scripts.

    >>> page_html("<p>", "run")[:60]
    '<iframe title="run" sandbox="allow-scripts allow-downloads" '
    """
    place = 'style="width:100%;height:900px;border:0"'
    sandbox = 'sandbox="allow-scripts allow-downloads"'
    return f'<iframe title="{html.escape(title)}" {sandbox} {place} srcdoc="{html.escape(page)}"></iframe>'
