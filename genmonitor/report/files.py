# SPDX-License-Identifier: Apache-2.0
"""Names of the files in a run's folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

RUN = re.compile(r"(.+)_run\.json")
BY_EPOCH = re.compile(r"(.+)_epoch_(\d+)_step_(\d+)")
FOLDER = "genmonitor"
"""Subfolder of these files in the folder of a run."""
REPORT = "report.html"
HISTORY = "history.csv"


def run_prefixes(paths: Iterable[Path]) -> set[str]:
    """Return the prefixes of the monitors with a run's file among these."""
    return {match[1] for match in (RUN.fullmatch(path.name) for path in paths) if match}


def safe(name: str) -> str:
    """Return a valid prefix of file names, with underscores for other characters.

    Example:
        >>> safe("../cms/c k a")
        'cms_c_k_a'
    """
    return re.sub(r"[^A-Za-z0-9-]+", "_", name).strip("_") or "figure"


def run_file(prefix: str) -> str:
    """Return the name of the file of a monitor's run.

    Example:
        >>> run_file("cms")
        'cms_run.json'
    """
    return f"{safe(prefix)}_run.json"


def file_stem(tag: str, step: int, epoch: int | None) -> str:
    """Return the name, without its ending, of the file for a tag.

    Args:
        tag: Tag, for example ``cms/samples``.
        step: Step of the Trainer.
        epoch: Epoch; None for a file of which only the latest is kept.

    Example:
        >>> file_stem("cms/samples", 1200, 3), file_stem("cms/cka", 0, None)
        ('cms_samples_epoch_0003_step_1200', 'cms_cka')
    """
    return safe(tag) if epoch is None else f"{safe(tag)}_epoch_{epoch:04d}_step_{step}"


def own_files(folder: Path) -> list[Path]:
    """List the files in a folder by name, without hidden ones and links, which may lead out of the folder."""
    if not folder.is_dir():
        return []
    paths = (path for path in sorted(folder.iterdir()) if not path.name.startswith("."))
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def owner(path: Path, prefixes: Iterable[str]) -> str | None:
    """Return the prefix of a file, the longest that matches.

    Example:
        >>> owner(Path("cms_raw_samples.png"), ["cms", "cms_raw"]), owner(Path("partition.npz"), ["cms"])
        ('cms_raw', None)
    """
    return max((prefix for prefix in prefixes if path.name.startswith(f"{prefix}_")), key=len, default=None)
