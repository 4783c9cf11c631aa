# SPDX-License-Identifier: Apache-2.0
"""Finding the pages of the runs below a folder."""

from __future__ import annotations

import os
from pathlib import Path

# as genmonitor.report writes it, which is not imported: it loads torch, and TensorBoard would start seconds later
_FOLDER, _PAGE = "genmonitor", "report.html"


def find_pages(logdir: Path) -> dict[str, Path]:
    """Return the page of each run by the run's name: the path of its folder below the logdir, as TensorBoard has it.

    Linked folders are looked through, as by TensorBoard, each folder once; a page that is itself a link is left out,
    and so is what is hidden.
    """
    pages, seen = {}, set()
    for folder, below, _ in os.walk(logdir, followlinks=True):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if (real := os.path.realpath(folder)) in seen:
            below.clear()
            continue
        seen.add(real)
        page = Path(folder, _FOLDER, _PAGE)
        if page.is_file() and not page.is_symlink():
            pages[Path(folder).relative_to(logdir).as_posix()] = page
    return pages
