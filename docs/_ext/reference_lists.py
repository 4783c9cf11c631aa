# SPDX-License-Identifier: Apache-2.0
"""The papers under `References:` of a docstring as a list, one a line as they are written."""

from __future__ import annotations

from typing import Any


def as_list(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put a dash before each paper; the lines that continue one are indented already."""
    within = False
    for number, line in enumerate(lines):
        if line and not line.startswith(" "):
            within = line == "References:"
        elif within and line.startswith("    ") and not line.startswith("     "):
            lines[number] = f"    - {line[4:]}"
        elif within and line.startswith("        "):
            lines[number] = f"      {line[8:]}"


def setup(app: Any) -> dict[str, bool]:
    """Come before napoleon, which has priority 500."""
    app.connect("autodoc-process-docstring", as_list, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
