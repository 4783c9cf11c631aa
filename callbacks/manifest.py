# SPDX-License-Identifier: Apache-2.0
"""The folder of a run, and the manifest by which a logged value can be measured again."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from genmonitor.callbacks.files import write_whole

PACKAGES = ("genmonitor", "torch", "lightning", "pytorch-lightning", "torchmetrics", "numpy", "scipy")


def run_folder(trainer: Any) -> Path:
    """Return the folder of the run, that in which ModelCheckpoint puts its own: the same on every process."""
    folder = Path(trainer.default_root_dir)
    if trainer.loggers:
        logger = trainer.loggers[0]
        version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
        folder = Path(logger.save_dir or folder) / str(logger.name) / version
    return Path(trainer.strategy.broadcast(str(folder), src=0))


def versions() -> dict[str, str]:
    """Return the versions of what is installed of the packages that a value depends on."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # either namespace of Lightning may be missing
            found[name] = version(name)
    return found


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest and the versions it holds for, complete or not at all."""
    said = manifest | {"versions": versions()}
    write_whole(path, json.dumps(said, indent=1).encode())
