# SPDX-License-Identifier: Apache-2.0
"""The manifest of an evaluation: what a training run writes and a replay reads, and the software it ran on."""

from __future__ import annotations

import functools
import json
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import UnionType
from typing import Any, TypedDict, TypeVar, cast, get_args, get_origin, get_type_hints

PACKAGES = ("genmonitor", "torch", "lightning", "pytorch-lightning", "torchmetrics", "numpy", "scipy")


class EvaluationManifest(TypedDict):
    """By what an evaluation can be made again, but for the model and its data; every monitor writes it."""

    monitor: str
    prefix: str
    title: str
    evaluation: dict[str, Any]
    repeatable: list[Any]
    findings: list[Any]
    settings: dict[str, Any]
    seed: int
    n_samples: int
    sample_batch_size: int
    drawn: list[Any]
    prompts: list[Any] | None
    image_key: str | int | None
    evaluate_on: str | None
    unserializable_args: list[Any]
    folder: str


class TrainingManifest(TypedDict):
    """In which training it was made; the monitors of a Trainer write it too."""

    weights: str
    module: str
    data: str | None
    current_epoch: int
    global_step: int
    validation: bool
    device: str
    precision: str
    processes: int
    threads: int


class RunManifest(EvaluationManifest, TrainingManifest):
    """The manifest of an evaluation in a training run."""

    versions: dict[str, Any]


class RegionsManifest(TypedDict):
    """What is fixed for a run about regions; the partition is a file."""

    gamma: float
    gammas: dict[str, Any]
    baseline: dict[str, Any]
    range: list[Any]
    linkage: str | None
    stability: dict[str, Any]


class RegionFiles(TypedDict):
    """The files that the manifest refers to, by their names."""

    partition: str
    real: str


class RegionRunManifest(RunManifest, RegionsManifest, RegionFiles):
    """The manifest of an evaluation of regions in a training run."""


ManifestT = TypeVar("ManifestT", bound=RunManifest)


def read_manifest(path: Path, kind: type[ManifestT]) -> ManifestT:
    """Read a manifest of a kind.

    Raises:
        OSError: if there is no such file.
        ValueError: if it is none, naming what it lacks.
    """
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"Expected a manifest, but {path} is no whole JSON file: {error}") from error
    found = found if isinstance(found, dict) else {}
    kinds = {name: _classes(hint) for name, hint in get_type_hints(kind).items()}
    if lacking := [name for name in kinds if name not in found or not isinstance(found[name], kinds[name])]:
        raise ValueError(
            f"Expected the manifest of an evaluation in a training run, but {path} lacks {', '.join(lacking)}."
        )
    return cast(ManifestT, found)


def _classes(hint: Any) -> tuple[type, ...]:
    """Return the classes that a type hint allows, whole numbers among those of a float."""
    options = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    return (*(get_origin(option) or option for option in options), *((int,) if float in options else ()))


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of what is installed of the packages that a value depends on."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # either namespace of Lightning may be missing
            found[name] = version(name)
    return found


def where_defined(thing: type) -> str:
    """Say where to import a class from: "package.module:Class", or "/path/to/script.py:Class" if it is in no package.

    Example:
        >>> where_defined(Path)
        'pathlib:Path'
    """
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    alone = thing.__module__ == "__main__" or ("." not in thing.__module__ and file is not None)
    installed = file is not None and ("site-packages" in file or file.startswith(sys.base_prefix))
    place = str(Path(file).resolve()) if file is not None and alone and not installed else thing.__module__
    return f"{place}:{thing.__qualname__}"
