# SPDX-License-Identifier: Apache-2.0
"""What the theme's pages lack for readers with a keyboard or a screen reader, as axe-core finds it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

REPAIRS = {
    r'class="caption" role="heading"': 'class="caption" role="heading" aria-level="2"',
    r'<aside class="sidebar-drawer"': '<aside class="sidebar-drawer" aria-label="All pages"',
    r'<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    r'<div class="content-icon-container"': '<div class="content-icon-container" role="navigation" aria-label="Source"',
    r'<th class="head"><p></p></th>': "<td></td>",
    # what scrolls on a narrow screen
    r"<pre>": '<pre tabindex="0">',
    r'<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    # the page of the search has no heading, and a signature of several lines is no list of definitions
    r'(<article role="main" id="furo-main-content">)\s*<noscript>': r"\1<h1>Search</h1><noscript>",
    r'<dl>\s*(<dd><em class="sig-param.*?)</dl>': r'<div class="parameters">\1</div>',
    r'<dd>(<em class="sig-param.*?)</dd>': r"<div>\1</div>",
}
"""Pattern of a part of a page as the theme writes it, and what stands in its place."""


def repaired(page: str) -> str:
    """Return a page with all repairs.

    >>> repaired('<table><th class="head"><p></p></th></table>')
    '<table><td></td></table>'
    """
    for written, better in REPAIRS.items():
        page = re.sub(written, better, page, flags=re.DOTALL)
    return page


def on_finish(app: Any, exception: Exception | None) -> None:
    """Repair the pages that were written."""
    if exception is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            path.write_text(repaired(path.read_text(encoding="utf-8")), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Come once all pages are written."""
    app.connect("build-finished", on_finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
