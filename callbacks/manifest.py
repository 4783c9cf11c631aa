# SPDX-License-Identifier: Apache-2.0
"""The folder of a run, and the manifest by which a logged value can be measured again."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genmonitor._io import atomic_write

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


def circumstances(trainer: Any, pl_module: Any) -> dict[str, Any]:
    """Return what else a measured number may depend on: whose module and data, and what they ran on."""
    data = getattr(trainer, "datamodule", None)
    return {
        "module": where_defined(type(pl_module)),
        "data": None if data is None else where_defined(type(data)),
        "current_epoch": trainer.current_epoch,
        "global_step": trainer.global_step,
        "validation": bool(trainer.enable_validation),
        "device": pl_module.device.type,
        "precision": str(trainer.precision),
        "processes": trainer.world_size,
        "threads": torch.get_num_threads(),
    }


def where_defined(thing: type) -> str:
    """Say where to import a class from: "package.module:Class", or "/path/to/script.py:Class" if it is in no package.

    Example:
        >>> where_defined(Path("runs").__class__.__base__)
        'pathlib:Path'
    """
    module = sys.modules.get(thing.__module__)
    file = getattr(module, "__file__", None)
    alone = thing.__module__ == "__main__" or ("." not in thing.__module__ and file is not None)
    installed = file is not None and ("site-packages" in file or file.startswith(sys.base_prefix))
    place = str(Path(file).resolve()) if file is not None and alone and not installed else thing.__module__
    return f"{place}:{thing.__qualname__}"


def fingerprint(images: Tensor) -> str:
    """Return a hash of images, to tell whether data are the same."""
    return hashlib.sha256(images.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


def write_about(path: Path, charts: Mapping[str, Sequence[str]], about: Mapping[str, str]) -> None:
    """Write down once what a monitor's values say and which of them share a chart, for the report."""
    write_json(path, {"charts": dict(charts), "about": dict(about)})


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest and the versions it holds for, complete or not at all."""
    write_json(path, manifest | {"versions": versions()})


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, complete or not at all."""
    atomic_write(path, json.dumps(content, indent=1).encode())
