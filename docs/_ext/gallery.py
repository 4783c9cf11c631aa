# SPDX-License-Identifier: Apache-2.0
"""The sections of the galleries of kinds, written from what the package itself says of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from genmonitor.functional.diagnosis.kinds import FAULT_MODELS, KINDS, Kind

PLACE = re.compile(r"<!-- (links|kinds) of (\w+) -->")
COLOR = ("color", "desaturated", "oversaturated", "hue", "channels_swapped")
"""Kinds of tone that have a page of their own."""
UNKNOWN = "none that a source bears out"
PICTURES = Path(__file__).parents[1] / "pictures" / "kinds"


def linked(source: str) -> str:
    """Return a source whose arXiv numbers, DOIs and addresses are links.

    >>> linked("Lin et al., WACV 2024, arXiv 2305.08891")
    'Lin et al., WACV 2024, [arXiv 2305.08891](https://arxiv.org/abs/2305.08891)'
    """
    source = re.sub(r"(arXiv (\d{4}\.\d{4,5}))", r"[\1](https://arxiv.org/abs/\2)", source)
    source = re.sub(r"(doi (10\.[\w./-]+\w))", r"[\1](https://doi.org/\2)", source)
    return re.sub(r"(?<!/)\b(github\.com/[\w./-]+\w)", r"[\1](https://\1)", source)


def tried(name: str) -> str:
    """Return the strengths that are tried first for a kind, with their units; empty where they are measured."""
    units: dict[str, list[float]] = {}
    for model in FAULT_MODELS:
        for strength in model.strengths:
            called, size, unit = model.named(strength)
            if called == name:
                units.setdefault(unit, []).append(size)
    alike: dict[str, list[str]] = {}
    for unit, strengths in units.items():
        alike.setdefault(", ".join(f"{x:g}" for x in sorted(set(strengths))), []).append(unit)
    said = (f"{strengths} {' or '.join(of)}" for strengths, of in alike.items())
    return "; ".join(said).replace(" or px ", " or ")


def section(name: str, kind: type[Kind], said: str) -> str:
    """Return the section of a kind, whose anchor is its name with hyphens."""
    title = name.replace("_", " ")
    first = tried(name)
    rows = {
        "The fault": f"{kind.change}{f'; tried first: {first}' if first else ''}",
        "Usual\N{NO-BREAK SPACE}cause": f"{kind.cause} ({linked(kind.source)})" if kind.cause else UNKNOWN,
        "To try": kind.remedy,
    }
    lines = [f"| **{key}** | {value} |" for key, value in rows.items()]
    picture = f"![Real images, the same with the fault, and the map of differences: {title}](pictures/kinds/{name}.png)"
    return "\n".join([f"## {title.capitalize()}", "", picture, "", f"> {said}", "", "| | |", "| --- | --- |", *lines])


def group_of(name: str) -> str:
    """Return the page of a kind: that of its module, or "color"."""
    return "color" if name in COLOR else KINDS[name].__module__.rpartition(".")[2]


def links(group: str) -> str:
    """Return links to the sections of a page."""
    names = (name for name in KINDS if group_of(name) == group)
    return " · ".join(f"[{name.replace('_', ' ')}](kinds-{group}.md#{name.replace('_', '-')})" for name in names)


def gallery(group: str) -> str:
    """Return the sections of a page."""
    said = json.loads((PICTURES / "said.json").read_text(encoding="utf-8"))
    return "\n\n".join(section(name, kind, said[name]) for name, kind in KINDS.items() if group_of(name) == group)


def on_read(app: Any, docname: str, source: list[str]) -> None:
    """Put links and sections where a page asks for them."""
    source[0] = PLACE.sub(lambda match: {"links": links, "kinds": gallery}[match[1]](match[2]), source[0])


def setup(app: Any) -> dict[str, bool]:
    """Write the sections before the page is parsed."""
    app.connect("source-read", on_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
