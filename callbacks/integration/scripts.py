# SPDX-License-Identifier: Apache-2.0
"""Importing what a manifest or the command line names, also from a script that is in no package."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

SETUP = "Give --setup FILE.py:FUNCTION, a function without arguments that returns module, data and monitor."


def imported(where: str) -> Any:
    """Import "package.module:name", or "path/to/file.py:name" with the file's folder on the path, as for a script.

    Raises:
        ValueError: if there is no such thing.
    """
    place, _, name = where.rpartition(":")
    try:
        if place.endswith(".py"):
            sys.path.insert(0, str(Path(place).resolve().parent))
            place = Path(place).stem
        found: Any = importlib.import_module(place)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"Expected FILE.py:NAME or package.module:NAME, but got {where}: {error}. {SETUP}") from error
    return found


def find_script(where: str, folder: Path, then: str | None, script: Path | None = None) -> str:
    """Say where to import a class of a manifest from: "FILE.py:CLASS" with the file where it is now.

    A script is looked for where it lies as seen from the manifest, so that a copy of a run and its script together uses
    the copied one, and then where it was.

    Args:
        where: "FILE.py:CLASS" as in the manifest, or "package.module:CLASS", which stays.
        folder: that of the manifest.
        then: the same folder during the run; None if the manifest does not say.
        script: the file to take instead.

    Raises:
        ValueError: if it is in neither place, naming both.
    """
    file, _, name = where.rpartition(":")
    if not file.endswith(".py"):
        return where
    beside = folder.resolve() / os.path.relpath(file, then) if then else Path(file)
    places = [Path(os.path.normpath(place)) for place in ((beside, file) if script is None else (script,))]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        looked = ", nor ".join(map(str, dict.fromkeys(places)))
        raise ValueError(
            f"Expected the script with the class {name} that was trained, but there is no {looked}. "
            "Say where it is now with --script FILE.py, or what to measure with --setup FILE.py:FUNCTION."
        )
    return f"{found}:{name}"
