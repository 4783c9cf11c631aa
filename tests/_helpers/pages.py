# SPDX-License-Identifier: Apache-2.0
"""README and the pages of docs/, as text, and what stands in them as code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (README, *sorted((ROOT / "docs").rglob("*.md")))
    if path.exists()
}
"""The text of each page by its path; nothing where the tests stand by themselves."""


def fenced(text: str) -> list[tuple[str, str]]:
    """Return the blocks of code, each with its language, and not those that Sphinx acts on."""
    blocks = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(kind, code) for kind, code in blocks if not kind.startswith("{")]


def snippets(text: str) -> list[str]:
    """Return the blocks of Python."""
    return [code for kind, code in fenced(text) if kind == "python"]


def commands(text: str) -> list[str]:
    """Return the lines of a shell, from blocks without a language and from running text."""
    blocks = [line.partition(" #")[0].strip() for kind, code in fenced(text) if not kind for line in code.splitlines()]
    inline = re.findall(r"`((?:python|genmonitor|make|pip) [^`…]+)`", text)
    return list(dict.fromkeys(line for line in [*blocks, *inline] if line))
