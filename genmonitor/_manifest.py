# SPDX-License-Identifier: Apache-2.0
"""Data for repeating a run elsewhere: versions of the software, and locations of classes."""

from __future__ import annotations

import functools
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of the installed packages on which a value depends."""
    found = {}
    for name in ("genmonitor", "torch", "lightning", "pytorch-lightning", "torchmetrics", "numpy", "scipy"):
        with suppress(PackageNotFoundError):  # either namespace of Lightning may be missing
            found[name] = version(name)
    return found


def where_defined(thing: type) -> str:
    """Return the import location of a class: "package.module:Class", or "/path/to/script.py:Class" outside of packages.

    Example:
        >>> where_defined(Path)
        'pathlib:Path'
    """
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    alone = thing.__module__ == "__main__" or ("." not in thing.__module__ and file is not None)
    installed = file is not None and ("site-packages" in file or file.startswith(sys.base_prefix))
    place = str(Path(file).resolve()) if file is not None and alone and not installed else thing.__module__
    return f"{place}:{thing.__qualname__}"
