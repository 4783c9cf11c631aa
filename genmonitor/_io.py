# SPDX-License-Identifier: Apache-2.0
"""Writing a file so that whoever looks, also after a crash, finds the old one or the new one and never half of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file, complete or not at all.

    Raises:
        OSError: if it cannot be written; what was there before is still there.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")  # another process may write the same file
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, complete or not at all.

    Raises:
        OSError: if it cannot be written; what was there before is still there.
    """
    atomic_write(path, json.dumps(content, indent=1).encode())
