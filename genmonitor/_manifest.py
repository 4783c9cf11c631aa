# SPDX-License-Identifier: Apache-2.0
"""What of a run can be repeated elsewhere: the software it ran on, and where a class was defined."""

from __future__ import annotations

import functools
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypedDict

PACKAGES = ("genmonitor", "torch", "lightning", "pytorch-lightning", "torchmetrics", "numpy", "scipy")


class RegionsManifest(TypedDict):
    """What is fixed for a run about regions; the partition is a file."""

    gamma: float
    baseline: dict[str, Any]
    chance: dict[str, float]
    range: list[Any]
    linkage: str | None
    stability: dict[str, Any]


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
