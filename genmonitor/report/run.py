# SPDX-License-Identifier: Apache-2.0
"""Reading what monitors left in the folder of a run: manifests, pictures, the partition and tables."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genmonitor.partition import PixelPartition

_MANIFEST = re.compile(r"(.+)_check_(\d+)\.json")
_BY_EPOCH = re.compile(r"(.+)_epoch_(\d+)_step_(\d+)")
_MAX_ROWS = 500


@dataclass(frozen=True)
class Picture:
    """A PNG file, and the check that it shows; without one it is the latest of its kind."""

    path: Path
    epoch: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Table:
    """A table of text and numbers; a cell that names a PNG file of the folder is a picture."""

    name: str
    columns: list[str]
    rows: list[list[Any]]


@dataclass(frozen=True)
class Monitored:
    """What one monitor left: its checks in their order, the last manifest, and pictures by their name."""

    prefix: str
    checks: list[dict[str, float]]
    manifest: dict[str, Any]
    charts: dict[str, list[str]]
    about: dict[str, str]
    pictures: dict[str, list[Picture]]
    partition: PixelPartition | None
    notes: list[str]
    """Of the whole run."""
    alerts: list[dict[str, Any]]
    """Of a check each: its "epoch" and "step", and a "text"; in their order."""

    @property
    def compared(self) -> bool:
        """Whether two sets of images were compared, outside of any training: one check without an epoch."""
        return "epoch" not in self.checks[-1]


def find_folder(run: Path) -> Path:
    """Find the folder with the manifests, given that or the run's.

    Raises:
        FileNotFoundError: if there is none, naming the runs below where there are some.
    """
    for folder in (run, run / "genmonitor"):
        if any(_MANIFEST.fullmatch(path.name) for path in folder.glob("*_check_*.json")):
            return folder
    below = sorted({path.parent.parent for path in run.glob("**/genmonitor/*_check_*.json")}) if run.is_dir() else []
    hint = f" There are runs below it: {', '.join(map(str, below[:5]))}." if below else " Train with a monitor first."
    raise FileNotFoundError(f"Expected the folder of a run with the manifests of a monitor, but got {run}.{hint}")


def read_run(folder: Path) -> tuple[list[Monitored], list[Table]]:
    """Read what every monitor left in a folder, and the tables.

    A file that is no manifest, picture or table is left out; nothing is unpickled.
    """
    manifests: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*_check_*.json")):
        match = _MANIFEST.fullmatch(path.name)
        if match:
            manifests.setdefault(match[1], []).append(json.loads(path.read_text(encoding="utf-8")))
    monitored = [_monitored(folder, prefix, found) for prefix, found in manifests.items()]
    read = {f"{prefix}_{name}.json" for prefix in manifests for name in ("about", "notes")}
    files = [path for path in sorted(folder.iterdir()) if path.suffix in (".json", ".csv")]
    others = [path for path in files if not _MANIFEST.fullmatch(path.name) and path.name not in read]
    tables = [_table(name, path) for name, path in _latest(others).items()]
    return monitored, [table for table in tables if table is not None]


def _monitored(folder: Path, prefix: str, manifests: list[dict[str, Any]]) -> Monitored:
    checks = [manifests[0]["check"]]
    kept = manifests[0]
    for manifest in manifests[1:]:
        if manifest["check"]["step"] < checks[-1]["step"]:  # left over from before the curves started anew
            break
        checks.append(manifest["check"])
        kept = manifest
    said = _json(folder / f"{prefix}_about.json", {"charts": {}, "about": {}})
    notes = _json(folder / f"{prefix}_notes.json", [])
    partition = folder / str(kept.get("partition"))
    return Monitored(
        prefix,
        checks,
        kept,
        said["charts"],
        said["about"],
        _pictures(folder, prefix),
        PixelPartition.load(partition) if partition.is_file() else None,
        [note["text"] for note in notes if note["epoch"] is None],
        [note for note in notes if note["epoch"] is not None],
    )


def _json(path: Path, otherwise: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else otherwise


def _pictures(folder: Path, prefix: str) -> dict[str, list[Picture]]:
    pictures: dict[str, list[Picture]] = {}
    for path in sorted(folder.glob(f"{prefix}_*.png")):
        name = path.stem.removeprefix(f"{prefix}_")
        match = _BY_EPOCH.fullmatch(name)
        if match:
            pictures.setdefault(match[1], []).append(Picture(path, int(match[2]), int(match[3])))
        else:
            pictures[name] = [Picture(path)]
    for found in pictures.values():
        found.sort(key=lambda picture: picture.step or 0)
    return pictures


def _latest(files: list[Path]) -> dict[str, Path]:
    """Name files, and keep the last where there is one for each check."""
    latest: dict[str, tuple[int, str, Path]] = {}
    for path in files:
        match = _BY_EPOCH.fullmatch(path.stem)
        kind, step, when = (match[1], int(match[3]), f", epoch {int(match[2])}") if match else (path.stem, 0, "")
        if kind not in latest or step >= latest[kind][0]:
            latest[kind] = (step, kind.replace("_", " ") + when, path)
    return {name: path for _, name, path in latest.values()}


def _table(name: str, path: Path) -> Table | None:
    """Read a list of values, a list of dictionaries, {"columns": …, "data": …}, or a CSV file with a heading."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows: list[list[Any]] = [list(row) for row in csv.reader(file)]
        return Table(name, rows[0], rows[1 : _MAX_ROWS + 1]) if rows else None
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    if isinstance(content, dict):
        columns, data = content.get("columns"), content.get("data", content.get("rows"))
        if (
            not isinstance(columns, list)
            or not isinstance(data, list)
            or not all(isinstance(row, list) for row in data)
        ):
            return None
        return Table(name, columns, data[:_MAX_ROWS])
    if not isinstance(content, list) or not content:
        return None
    content = content[:_MAX_ROWS]
    if all(isinstance(row, dict) for row in content):
        columns = list(dict.fromkeys(key for row in content for key in row))
        return Table(name, columns, [[row.get(column) for column in columns] for row in content])
    return Table(name, ["", name.removesuffix("s")], [[number, value] for number, value in enumerate(content)])
