# SPDX-License-Identifier: Apache-2.0
"""Names of the files in a run's folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

RUN = re.compile(r"(.+)_run\.json")
BY_EPOCH = re.compile(r"(.+)_epoch_(\d+)_step_(\d+)")
FOLDER = "genmonitor"
"""Of these files, in the folder of a run."""
REPORT = "report.html"
HISTORY = "history.csv"


def run_prefixes(paths: Iterable[Path]) -> set[str]:
    """Return the prefixes of the monitors that left the file of a run among these."""
    return {match[1] for match in (RUN.fullmatch(path.name) for path in paths) if match}


def safe(name: str) -> str:
    """Return what can begin a file's name: whatever a file name should not hold becomes an underscore.

    Example:
        >>> safe("../cms/c k a")
        'cms_c_k_a'
    """
    return re.sub(r"[^A-Za-z0-9-]+", "_", name).strip("_") or "figure"


def run_file(prefix: str) -> str:
    """Name the file of a monitor's run.

    Example:
        >>> run_file("cms")
        'cms_run.json'
    """
    return f"{safe(prefix)}_run.json"


def file_stem(tag: str, step: int, epoch: int | None) -> str:
    """Return the name, without its ending, of the file for what is logged under a tag.

    Args:
        tag: For example ``cms/samples``.
        step: The trainer's.
        epoch: None for a file of which only the latest is kept.

    Example:
        >>> file_stem("cms/samples", 1200, 3), file_stem("cms/cka", 0, None)
        ('cms_samples_epoch_0003_step_1200', 'cms_cka')
    """
    return safe(tag) if epoch is None else f"{safe(tag)}_epoch_{epoch:04d}_step_{step}"


def own_files(folder: Path) -> list[Path]:
    """List the files in a folder by name, without hidden ones and links: a link may lead out of the folder."""
    if not folder.is_dir():
        return []
    paths = (path for path in sorted(folder.iterdir()) if not path.name.startswith("."))
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def owner(path: Path, prefixes: Iterable[str]) -> str | None:
    """Return the prefix under which a file was written: the longest that fits.

    Example:
        >>> owner(Path("cms_raw_samples.png"), ["cms", "cms_raw"]), owner(Path("partition.npz"), ["cms"])
        ('cms_raw', None)
    """
    return max((prefix for prefix in prefixes if path.name.startswith(f"{prefix}_")), key=len, default=None)
