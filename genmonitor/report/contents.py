# SPDX-License-Identifier: Apache-2.0
"""Files in a run's folder: their names, and what is in them, sanitized; what the report cannot show is left out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from genmonitor._formatting import Band
from genmonitor._io import read_json
from genmonitor.evaluation.findings import Finding
from genmonitor.evaluation.results import Record
from genmonitor.evaluation.values import ValueSpec

T = TypeVar("T")
_MAX_ROWS = 500
MANIFEST = re.compile(r"(.+)_evaluation_(\d+)\.json")
BY_EPOCH = re.compile(r"(.+)_epoch_(\d+)_step_(\d+)")
FOLDER = "genmonitor"
"""Of these files, in the folder of a run."""
REPORT = "report.html"
HISTORY = "history.csv"
_MARKS_A_PREFIX = re.compile(r"(.+)_(?:evaluation_\d+|values|notes)\.json")


def safe(name: str) -> str:
    """Return what can begin a file's name: whatever a file name should not hold becomes an underscore.

    Example:
        >>> safe("../cms/c k a")
        'cms_c_k_a'
    """
    return re.sub(r"[^A-Za-z0-9-]+", "_", name).strip("_") or "figure"


def manifest_name(prefix: str, number: int) -> str:
    """Name the manifest of an evaluation.

    Example:
        >>> manifest_name("cms", 12)
        'cms_evaluation_00012.json'
    """
    return f"{safe(prefix)}_evaluation_{number:05d}.json"


def file_stem(tag: str, step: int, epoch: int | None) -> str:
    """Return the name, without its ending, of the file for what is logged under a tag.

    Args:
        tag: for example ``cms/samples``.
        step: the trainer's.
        epoch: None for a file of which only the latest is kept.

    Example:
        >>> file_stem("cms/samples", 1200, 3), file_stem("cms/cka", 0, None)
        ('cms_samples_epoch_0003_step_1200', 'cms_cka')
    """
    return safe(tag) if epoch is None else f"{safe(tag)}_epoch_{epoch:04d}_step_{step}"


def own_files(folder: Path) -> list[Path]:
    """List the files in a folder by name, without hidden ones and links: a link may lead out of the folder."""
    if not folder.is_dir():
        return []
    paths = (path for path in sorted(folder.iterdir()) if not path.name.startswith("."))
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def find_prefixes(files: Iterable[Path]) -> set[str]:
    """Return the prefixes of the monitors that wrote files."""
    return {match[1] for path in files if (match := _MARKS_A_PREFIX.fullmatch(path.name))}


def owner(path: Path, prefixes: Iterable[str]) -> str | None:
    """Return the prefix under which a file was written: the longest that fits.

    Example:
        >>> owner(Path("cms_raw_samples.png"), ["cms", "cms_raw"]), owner(Path("partition.npz"), ["cms"])
        ('cms_raw', None)
    """
    return max((prefix for prefix in prefixes if path.name.startswith(f"{prefix}_")), key=len, default=None)


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
    bands: dict[str, Any] = {name: tuple(map(as_number, as_list(band))) for name, band in _as_dict(baseline).items()}
    return {name: band for name, band in bands.items() if len(band) == 3 and None not in band}


def as_values(values: Any) -> list[ValueSpec]:
    """Keep the declarations of values that are whole."""
    fields = (str, bool, type(None))
    found = map(_as_dict, as_list(values))
    return _made(ValueSpec.from_dict, (one for one in found if all(isinstance(x, fields) for x in one.values())))


def as_findings(findings: Any) -> list[Finding]:
    """Keep the findings that are whole."""
    found = _made(Finding.from_dict, as_list(findings))
    return [x for x in found if all(isinstance(text, str) for text in (x.text, x.verdict, x.area.name, x.area.where))]


def _made(make: Callable[[dict[str, Any]], T], saved: Iterable[Any]) -> list[T]:
    made = []
    for one in saved:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            made.append(make(one))
    return made


def as_notes(notes: Iterable[Any]) -> list[Note]:
    """Keep the notes that have a text."""
    known = [note for note in notes if isinstance(note, dict) and "text" in note]
    return [Note(str(note["text"]), as_number(note.get("epoch")), as_number(note.get("step"))) for note in known]


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


@dataclass(frozen=True)
class NamedTable:
    """A table of text and numbers."""

    name: str
    columns: list[Any]
    rows: list[list[Any]]


def read_tables(files: Iterable[Path]) -> list[NamedTable]:
    """Read tables that `RunFolder.write_table` wrote; where there is one for each evaluation, the last."""
    tables = [_read(name, path) for name, path in _latest([path for path in files if path.suffix == ".json"])]
    return [table for table in tables if table is not None]


def _latest(files: Iterable[Path]) -> list[tuple[str, Path]]:
    """Name files, and keep the last where there is one for each evaluation."""
    latest: dict[str, tuple[int, str, Path]] = {}
    for path in files:
        match = BY_EPOCH.fullmatch(path.stem)
        kind, step, when = (match[1], int(match[3]), f", epoch {int(match[2])}") if match else (path.stem, 0, "")
        if kind not in latest or step >= latest[kind][0]:
            latest[kind] = (step, kind.replace("_", " ") + when, path)
    return [(name, path) for _, name, path in latest.values()]


def _read(name: str, path: Path) -> NamedTable | None:
    content = read_json(path)
    if not isinstance(content, list) or not content or not all(isinstance(row, dict) for row in content):
        return None
    rows = content[:_MAX_ROWS]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return NamedTable(name, columns, [[row.get(column) for column in columns] for row in rows])
