# SPDX-License-Identifier: Apache-2.0
"""A page for each public class and function, and lists of them where pages ask for those of a module."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

PLACE = re.compile(r"<!-- pages of ([\w.]+) -->")
MODULES = (
    "genmonitor.callbacks",
    "genmonitor.monitoring",
    "genmonitor.metrics",
    "genmonitor.functional",
    "genmonitor.functional.diagnosis.kinds",
    "genmonitor.partition",
    "genmonitor.kernels",
    "genmonitor.evaluation",
    "genmonitor.encoders",
)
ONLY = {
    "genmonitor.monitoring": ("LoopMonitor", "EvaluationOptions"),
    "genmonitor.partition": ("PixelPartition",),
    "genmonitor.functional.diagnosis.kinds": ("FAULT_MODELS", "KINDS", "FaultModel", "Kind"),
}
"""What has a page of a module that has more names, or none in `__all__`."""
ELSEWHERE = {("genmonitor.callbacks", "Sampler")}
KINDS = {"class": inspect.isclass, "function": inspect.isfunction}


def names(module: str) -> list[str]:
    """Return the public names of a module that have a page, in the order of the alphabet."""
    found = ONLY.get(module) or importlib.import_module(module).__all__
    return sorted((name for name in found if (module, name) not in ELSEWHERE), key=str.lower)


def page(module: str, name: str) -> str:
    """Return the page of a name."""
    found = getattr(importlib.import_module(module), name)
    kind = next((kind for kind, holds in KINDS.items() if holds(found)), "data")
    option = {"class": "   :members:\n", "data": "   :no-value:\n"}.get(kind, "")
    return f"# {name}\n\n```{{eval-rst}}\n.. auto{kind}:: {module}.{name}\n{option}```\n"


def listed(module: str) -> str:
    """Return links to the pages of a module with the first line of each docstring, and the tree for the sidebar."""
    rows = []
    for name in names(module):
        found = getattr(importlib.import_module(module), name)
        told = inspect.isclass(found) or inspect.isfunction(found)
        first = (inspect.getdoc(found) or "").splitlines()[0] if told else ""
        rows.append(f"| [`{name}`](objects/{module}.{name}.md) | {first.replace('|', chr(92) + '|')} |")
    tree = "\n".join(f"objects/{module}.{name}" for name in names(module))
    return "\n".join(["| | |", "| --- | --- |", *rows, "", "```{toctree}", ":hidden:", tree, "```"])


def write(app: Any) -> None:
    """Write the pages beside the lists; one whose text is the same stays as it is."""
    folder = Path(app.srcdir) / "api" / "objects"
    folder.mkdir(exist_ok=True)
    pages = {f"{module}.{name}.md": page(module, name) for module in MODULES for name in names(module)}
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for file, text in pages.items():
        path = folder / file
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def on_read(app: Any, docname: str, source: list[str]) -> None:
    """Put the lists where the page asks for them."""
    source[0] = PLACE.sub(lambda found: listed(found[1]), source[0])


def setup(app: Any) -> dict[str, bool]:
    """Write the pages before Sphinx looks for files."""
    app.connect("builder-inited", write)
    app.connect("source-read", on_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
