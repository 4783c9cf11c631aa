# SPDX-License-Identifier: Apache-2.0
"""The folder of a run, and the manifest by which a logged value can be measured again."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("genmonitor", "torch", "lightning", "torchmetrics", "numpy", "scipy")


def run_folder(trainer: Any) -> Path:
    """Return the folder of the run, that in which ModelCheckpoint puts its own: the same on every process."""
    folder = Path(trainer.default_root_dir)
    if trainer.loggers:
        logger = trainer.loggers[0]
        version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
        folder = Path(logger.save_dir or folder) / str(logger.name) / version
    return Path(trainer.strategy.broadcast(str(folder), src=0))


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest and the versions it holds for, complete or not at all."""
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(manifest | {"versions": {name: version(name) for name in PACKAGES}}, indent=1))
    os.replace(aside, path)
