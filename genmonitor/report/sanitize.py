# SPDX-License-Identifier: Apache-2.0
"""Sanitized values of JSON files: parts that the report cannot show are left out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from genmonitor.evaluation.results import Record

Band = tuple[float, float, float]


@dataclass(frozen=True)
class Note:
    """A sentence about an evaluation, or about the whole run if it has no epoch."""

    text: str
    epoch: float | None = None
    step: float | None = None


def as_record(values: Any) -> Record:
    """Keep the finite numbers: what is left out is a gap in its curve.

    Example:
        >>> as_record({"image": 0.9, "mmd": float("nan"), "step": "ten"})
        {'image': 0.9}
    """
    numbers = {name: as_number(value) for name, value in _as_dict(values).items()}
    return {name: value for name, value in numbers.items() if value is not None}


def as_number(value: Any) -> float | None:
    """Return a finite number as it is, and None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer that no float can hold
        return None


def as_bands(baseline: Any) -> dict[str, Band]:
    """Keep the bands of low, median and high."""
    bands = {}
    for name, band in _as_dict(baseline).items():
        values = as_list(band)
        numbers = [number for value in values if (number := as_number(value)) is not None]
        if len(values) == len(numbers) == 3:
            bands[name] = (numbers[0], numbers[1], numbers[2])
    return bands


def as_charts(charts: Any) -> dict[str, list[str]]:
    """Keep titles with lists of names."""
    return {title: [str(name) for name in as_list(names)] for title, names in _as_dict(charts).items()}


def as_texts(texts: Any) -> dict[str, str]:
    """Return texts by name."""
    return {name: str(text) for name, text in _as_dict(texts).items()}


def as_notes(notes: Iterable[Any]) -> list[Note]:
    """Keep the notes that have a text."""
    known = [note for note in notes if isinstance(note, dict) and "text" in note]
    return [Note(str(note["text"]), as_number(note.get("epoch")), as_number(note.get("step"))) for note in known]


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []
