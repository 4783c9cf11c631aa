# SPDX-License-Identifier: Apache-2.0
"""Reading what a run left in its folder: manifests, pictures, partitions, notes and tables.

A run may have been cut short and its folder edited or copied from anywhere: what is not as expected is left out, files
that cannot be read are named, links are not followed, and nothing is unpickled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from genmonitor._formatting import Band
from genmonitor._io import read_json
from genmonitor.evaluation.findings import Finding
from genmonitor.evaluation.results import Record
from genmonitor.evaluation.values import ValueSpec, by_key
from genmonitor.partition import PixelPartition
from genmonitor.report.contents import (
    BY_EPOCH,
    FOLDER,
    HISTORY,
    MANIFEST,
    NamedTable,
    Note,
    as_bands,
    as_findings,
    as_list,
    as_notes,
    as_number,
    as_record,
    as_values,
    find_prefixes,
    own_files,
    owner,
    read_tables,
)


@dataclass(frozen=True)
class Picture:
    """A PNG file, and the evaluation that it shows; without one it is the latest of its kind."""

    path: Path
    epoch: int | None = None
    step: int | None = None


PictureT = TypeVar("PictureT", bound=Picture)


@dataclass(frozen=True)
class Strip(Picture):
    """Images below each other in a WebP file.

    Attributes:
        height: of an image.
        nearest: whether at the right of each is the real image nearest to it.
        captions: of the images, empty where they have none.
        distances: of each to the nearest real image, as a multiple of what is usual.
    """

    height: int = 1
    nearest: bool = False
    captions: tuple[str, ...] = ()
    distances: tuple[float, ...] = ()


@dataclass(frozen=True)
class MonitorRun:
    """What one monitor left.

    Attributes:
        prefix: what its files begin with.
        records: the finite values of each evaluation, the oldest first; at least one.
        messages: what was found at each.
        manifest: the last.
        baseline: low, median and high of what real images get, by the name of the value.
        values: declarations by key.
        findings: of the last evaluation, the one to look at first.
        pictures: by name, the oldest first.
        strips: images to show one by one: "real" ones, and generated "images" by evaluation, the oldest first.
        partition: None for a monitor without regions.
        notes: the oldest first.
    """

    prefix: str
    records: list[Record]
    messages: list[str]
    manifest: dict[str, Any]
    baseline: dict[str, Band]
    values: dict[str, ValueSpec]
    findings: list[Finding]
    pictures: dict[str, list[Picture]]
    strips: dict[str, list[Strip]]
    partition: PixelPartition | None
    notes: list[Note]

    @property
    def compared(self) -> bool:
        """Whether it is a comparison of two sets of images, outside of any training."""
        return "generated_images" in self.manifest


@dataclass(frozen=True)
class Run:
    """What is in the folder of a run; `unreadable` names the files that should have been read and could not be."""

    monitors: list[MonitorRun]
    tables: list[NamedTable]
    unreadable: list[str]


def find_folder(run: Path) -> Path:
    """Find the folder with the manifests, given that or the run's.

    Raises:
        FileNotFoundError: if there is none, naming the runs below where there are some.
    """
    for folder in (run, run / FOLDER):
        if any(MANIFEST.fullmatch(path.name) for path in own_files(folder)):
            return folder
    found = run.glob(f"**/{FOLDER}/*_evaluation_*.json") if run.is_dir() else []
    below = sorted({path.parent.parent for path in found})
    hint = f" There are runs below it: {', '.join(map(str, below[:5]))}." if below else " Train with a monitor first."
    raise FileNotFoundError(f"Expected the folder of a run with the manifests of a monitor, but got {run}.{hint}")


def read_run(folder: Path) -> Run:
    """Read what every monitor left in a folder, and the tables."""
    return _Reader(folder).read()


class _Reader:
    def __init__(self, folder: Path) -> None:
        self.files = {path.name: path for path in own_files(folder)}
        self.prefixes = find_prefixes(self.files.values())
        self.unreadable: list[str] = []

    def read(self) -> Run:
        numbered: dict[str, dict[int, dict[str, Any]]] = {prefix: {} for prefix in sorted(self.prefixes)}
        not_tables = {f"{prefix}_{name}.json" for prefix in self.prefixes for name in ("values", "notes")}
        for name in self.files:
            if match := MANIFEST.fullmatch(name):
                not_tables.add(name)
                manifest = self._json(name, {})
                if isinstance(manifest.get("evaluation"), dict):
                    numbered[match[1]][int(match[2])] = manifest
                elif name not in self.unreadable:
                    self.unreadable.append(name)
        monitors = [
            self._monitor(prefix, [manifest for _, manifest in sorted(found.items())])
            for prefix, found in numbered.items()
            if found
        ]
        tables = read_tables(path for name, path in self.files.items() if name not in {*not_tables, HISTORY})
        return Run(monitors, tables, self.unreadable)

    def _monitor(self, prefix: str, manifests: Sequence[dict[str, Any]]) -> MonitorRun:
        records: list[Record] = []
        for manifest in manifests:
            record = as_record(manifest["evaluation"])
            if records and record.get("step", math.inf) < records[-1].get("step", -math.inf):
                break  # left over from before the curves started over
            records.append(record)
        last = manifests[len(records) - 1]
        return MonitorRun(
            prefix,
            records,
            [str(manifest.get("message") or "") for manifest in manifests[: len(records)]],
            last,
            as_bands(last.get("baseline")),
            by_key(as_values(self._json(f"{prefix}_values.json", {}).get("values"))),
            as_findings(last.get("findings")),
            self._of(prefix, ".png", Picture),
            self._of(prefix, ".webp", self._strip),
            self._partition(last.get("partition")),
            as_notes(self._json(f"{prefix}_notes.json", [])),
        )

    def _json(self, name: str, otherwise: Any) -> Any:
        """Read a JSON file of the type of what is returned where there is none."""
        if name not in self.files:
            return otherwise
        content = read_json(self.files[name])
        if not isinstance(content, type(otherwise)):
            self.unreadable.append(name)
            return otherwise
        return content

    def _partition(self, name: Any) -> PixelPartition | None:
        if not isinstance(name, str) or name not in self.files:  # none out of the folder
            return None
        try:
            return PixelPartition.load(self.files[name])
        except (OSError, ValueError):
            self.unreadable.append(name)
            return None

    def _of(
        self, prefix: str, suffix: str, make: Callable[[Path, int | None, int | None], PictureT | None]
    ) -> dict[str, list[PictureT]]:
        """Return what is made of each picture with its epoch and step, by what it shows, the oldest first."""
        found: dict[str, list[PictureT]] = {}
        for path in self.files.values():
            if path.suffix == suffix and owner(path, self.prefixes) == prefix:
                name = path.stem.removeprefix(f"{prefix}_")
                match = BY_EPOCH.fullmatch(name)
                kind, epoch, step = (match[1], int(match[2]), int(match[3])) if match else (name, None, None)
                if (picture := make(path, epoch, step)) is not None:
                    found.setdefault(kind, []).append(picture)
        return {kind: sorted(some, key=lambda x: -1 if x.step is None else x.step) for kind, some in found.items()}

    def _strip(self, path: Path, epoch: int | None, step: int | None) -> Strip | None:
        about = self._json(path.with_suffix(".json").name, {})
        height = as_number(about.get("height"))
        if height is None or height < 1:
            return None
        distances = tuple(as_number(x) or 0.0 for x in as_list(about.get("distances")))
        captions = tuple(str(x) for x in as_list(about.get("captions")))
        return Strip(path, epoch, step, int(height), about.get("nearest") is True, captions, distances)
