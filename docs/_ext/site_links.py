# SPDX-License-Identifier: Apache-2.0
"""A test of the built pages: every internal link leads somewhere, and nothing is loaded from the network.

Links to other sites are left alone: they are for the reader to follow, and no build should depend on them.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""What a browser fetches by itself when it opens a page."""


class Page(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag's anchor, link or file."""
        given = {name: value for name, value in attrs if value}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if given.get("rel") not in {"canonical", "next", "prev", "search", "index"} and LOADED.get(tag) in given:
            self.loads.add(given[LOADED[tag]])


def problems(site: Path) -> list[str]:
    """Return a line for each link of the site that leads nowhere, and for each file that comes from the network."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name} loads {url} from the network" for url in sorted(page.loads) if is_elsewhere(url)]
        for url in sorted(page.links | page.loads):
            if is_elsewhere(url) or urlsplit(url).scheme in {"data", "mailto"}:
                continue
            target = (path.parent / unquote(urlsplit(url).path)).resolve() if urlsplit(url).path else path
            anchor = unquote(urlsplit(url).fragment)
            if not target.is_file():
                found.append(f"{name} links to {url}, but there is no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.append(f"{name} links to {url}, but there is no such place on that page")
    for path in sorted(site.rglob("*.css")):
        urls = re.findall(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)} loads {url} from the network" for url in urls]
    return found


def is_elsewhere(url: str) -> bool:
    """Whether the address is on another host."""
    return bool(urlsplit(url).netloc)


def on_finish(app: Any, exception: Exception | None) -> None:
    """Warn of each problem; `make docs` takes warnings for errors."""
    from sphinx.util import logging

    if exception is None and app.builder.format == "html":
        for problem in problems(Path(app.outdir).resolve()):
            logging.getLogger(__name__).warning(problem)


def setup(app: Any) -> dict[str, bool]:
    """Look at the pages once they are written."""
    app.connect("build-finished", on_finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
