# SPDX-License-Identifier: Apache-2.0
"""The plugin that TensorBoard loads, which finds the pages of runs and serves them.

An exception at import would prevent TensorBoard from starting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins.base_plugin import FrontendMetadata, TBContext, TBPlugin
from werkzeug import Request, Response

# A page may come from anywhere. It runs its own scripts in a separate origin without access to anything else.
_ALONE = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:"
)
# as genmonitor.report writes it, which is not imported: it loads torch, and TensorBoard would start seconds later
_FOLDER, _PAGE = re.compile(r"genmonitor(?:-(v\d+))?"), "report.html"


class ReportTab(TBPlugin):  # type: ignore[misc]
    """The tab with the page of each run below TensorBoard's logdir.

    Args:
        context: Context of TensorBoard for plugins.
    """

    plugin_name = "genmonitor"

    def __init__(self, context: TBContext) -> None:
        self._logdir = Path(context.logdir).expanduser() if context.logdir else None

    def get_plugin_apps(self) -> Mapping[str, Callable[..., Any]]:
        """Return the handler of each route."""
        script, style = _serve_static("tab.js", "text/javascript"), _serve_static("tab.css", "text/css")
        return {"/tab.js": script, "/tab.css": style, "/runs": self._serve_runs, "/page": self._serve_page}

    def is_active(self) -> bool:
        """Return True if there is any page; otherwise TensorBoard lists the tab as inactive."""
        return bool(self._pages())

    def frontend_metadata(self) -> FrontendMetadata:
        """Name the script that draws the tab."""
        return FrontendMetadata(es_module_path="/tab.js", tab_name="genmonitor")

    def _pages(self) -> dict[str, Path]:
        return {} if self._logdir is None else find_pages(self._logdir)

    def _serve_runs(self, environ: Any, start_response: Any) -> Any:
        """Answer with the runs and the times of their pages."""
        runs = []
        for name, page in self._pages().items():
            with suppress(OSError):  # removed meanwhile
                runs.append({"name": name, "written": page.stat().st_mtime})
        found = {"logdir": str(self._logdir or ""), "runs": runs}
        return http_util.Respond(Request(environ), found, "application/json")(environ, start_response)

    def _serve_page(self, environ: Any, start_response: Any) -> Any:
        """Answer with the page of a run, by its name among those that were found."""
        run = Request(environ).args.get("run", "")
        try:
            page = self._pages()[run].read_bytes()
        except (KeyError, OSError):  # removed meanwhile
            return Response("This run has no report, or it was removed.", 404)(environ, start_response)
        headers = {"Content-Security-Policy": _ALONE, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}
        content = page + b"<script>%s</script>" % _read("reload.js")
        return Response(content, content_type="text/html; charset=utf-8", headers=headers)(environ, start_response)


def find_pages(logdir: Path) -> dict[str, Path]:
    """Return the page of each run by the name of the run in TensorBoard: its folder relative to the logdir.

    Further runs in the same folder have their version after the name, such as "run (v1)".

    Linked folders are searched, as by TensorBoard, each folder once. Pages that are links, and hidden files, are left
    out.
    """
    pages, seen = {}, set()
    for folder, below, _ in os.walk(logdir, followlinks=True):
        below[:] = sorted(name for name in below if not name.startswith("."))
        real = os.path.realpath(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        name = Path(folder).relative_to(logdir).as_posix()
        for match in filter(None, map(_FOLDER.fullmatch, below)):
            page = Path(folder, match[0], _PAGE)
            if page.is_file() and not page.is_symlink():
                pages[f"{name} ({match[1]})" if match[1] else name] = page
    return pages


def _serve_static(name: str, kind: str) -> Callable[..., Any]:
    def serve(environ: Any, start_response: Any) -> Any:
        return http_util.Respond(Request(environ), _read(name), kind)(environ, start_response)

    return serve


def _read(name: str) -> bytes:
    return Path(__file__).with_name("report").joinpath(name).read_bytes()
