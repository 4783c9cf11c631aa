# SPDX-License-Identifier: Apache-2.0
"""The run of a monitor: one JSON file, read together with the pictures beside it.

A run may have been interrupted, and its folder edited or copied. Changed files are named and left out, links are not
followed, and nothing is unpickled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from genmonitor._formatting import Band
from genmonitor._validation import check_fields
from genmonitor.evaluation.results import MOMENT, Record
from genmonitor.findings.finding import Finding
from genmonitor.findings.tables import Table
from genmonitor.findings.values import ValueSpec, by_key, lookup
from genmonitor.partition import PixelPartition
from genmonitor.report.files import BY_EPOCH, FOLDER, own_files, owner, run_prefixes, safe

REMEDY = "It was edited or damaged: take it out of the folder, or put back the file that the run wrote."


@dataclass(frozen=True)
class Note:
    """A sentence about an evaluation, or about the whole run if it has no epoch.

    Attributes:
        text: The sentence.
        epoch: Epoch of the evaluation.
        step: Step of the evaluation.
        alert: Subject of an alert, such as "cluster_2"; None for other notes.
        since: First epoch of the fault behind an alert, if it is an earlier one.
    """

    text: str
    epoch: float | None = None
    step: float | None = None
    alert: str | None = None
    since: float | None = None


@dataclass(frozen=True)
class Picture:
    """A figure, or images below each other, with its evaluation; without one it is the latest of its kind.

    Attributes:
        path: Path of the PNG or WebP file.
        epoch: Epoch of the evaluation.
        step: Step of the evaluation.
        about: Data of images, empty for a figure. These are the "height" of one, "captions", "nearest" (True if the
            nearest real image is at the right of each), and its "distances" relative to the usual one.
    """

    path: Path
    epoch: int | None = None
    step: int | None = None
    about: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class MonitorRun:
    """The run of one monitor: everything needed to repeat an evaluation, except the model and its data.

    `RunFolder.write_run` writes `<prefix>_run.json`; `MonitorRun.read` reads this file, `read_run` all files of a
    folder. `run.manifest_at(step)` has the fixed values of the run (settings, seed, partition and so on) and those of
    the evaluation at this optimizer step ("values", weights, device, threads, versions).

    Attributes:
        prefix: Prefix of its files.
        fixed: Fixed values of the run, by name.
        evaluations: Evaluations, at least one, the oldest first, each with its "values", "message", faults under
            "wrong", and its circumstances.
        values: Declarations by key.
        findings: Findings of the last evaluation, the main one first.
        headlines: First few findings of each evaluation.
        baseline: Low, median and high value of real images, by the name of the value.
        notes: Notes, the oldest first.
        tables: Tables of the last evaluation, by name.
        pictures: Pictures by name, the oldest first.
        strips: Images to show one by one: "real" ones, and generated "images" by evaluation, the oldest first.
        partition: Partition; None for a monitor without regions.
    """

    prefix: str
    fixed: Mapping[str, Any]
    evaluations: Sequence[Mapping[str, Any]]
    values: Mapping[str, ValueSpec]
    findings: Sequence[Finding]
    baseline: Mapping[str, Band]
    notes: Sequence[Note]
    tables: Mapping[str, Table]
    pictures: Mapping[str, list[Picture]] = field(default_factory=dict)
    strips: Mapping[str, list[Picture]] = field(default_factory=dict)
    partition: PixelPartition | None = None
    headlines: Sequence[Sequence[Finding]] = ()

    @classmethod
    def read(cls, path: Path) -> MonitorRun:
        """Read the file of a run, without the pictures beside it.

        Raises:
            OSError: If there is no such file.
            ValueError: If it is not a file written by a monitor.
        """
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Expected the file of a run, but {path} is not: {error}. {REMEDY}") from error

    @classmethod
    def from_dict(cls, content: Any) -> MonitorRun:
        """Make it from the content written by `RunFolder.write_run`.

        Raises:
            ValueError: If a part is missing or of another kind, naming it.
        """
        try:
            fixed = dict(content)
            evaluations, notes, tables = (fixed.pop(name) for name in ("evaluations", "notes", "tables"))
            declared, findings = fixed.pop("declared"), fixed.pop("findings")
            if "stability" in fixed:
                fixed["stability"] = finite(fixed["stability"])
            if not evaluations:
                raise ValueError("`evaluations` is empty")
            if not isinstance(fixed.get("best_key"), str | None):
                raise TypeError(f"`best_key` is {fixed['best_key']!r:.60}, no name")
            for step in (dict(x).get("global_step") for x in evaluations):
                if not isinstance(step, int | None):
                    raise TypeError(f"`global_step` is {step!r:.60}, no number")
            return cls(
                safe(fixed["prefix"]),
                fixed,
                [{**x, "values": finite(x["values"]), "message": str(x["message"])} for x in evaluations],
                by_key(map(ValueSpec.from_dict, declared)),
                [Finding.from_dict(x) for x in findings],
                _bands(fixed.get("baseline", {})),
                [check_fields(Note(**note)) for note in notes],
                {name: Table(list(x["columns"]), list(map(list, x["rows"]))) for name, x in tables.items()},
                headlines=[list(map(Finding.from_dict, x.get("headlines", []))) for x in evaluations],
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    @property
    def records(self) -> list[Record]:
        """Return the finite values of each evaluation."""
        return [evaluation["values"] for evaluation in self.evaluations]

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the last evaluation."""
        return {**self.fixed, **self.evaluations[-1]}

    def manifest_at(self, step: float) -> dict[str, Any]:
        """Return the manifest of the evaluation at a step of the optimizer, the Trainer's `global_step`.

        Raises:
            ValueError: If there is none, naming the steps of the others.
        """
        steps = [evaluation.get("global_step") for evaluation in self.evaluations]
        if step not in steps:
            raise ValueError(
                f"Expected a checkpoint that was saved at an evaluation, at one of the steps "
                f"{', '.join(map(str, steps))}, but got one of step {step:g}. Give one of these steps."
            )
        return {**self.fixed, **self.evaluations[steps.index(step)]}

    def repeatable(self, step: float) -> dict[str, float]:
        """Return the logged values at a step that the same samples reproduce."""
        values = self.manifest_at(step)["values"]
        return {key: x for key, x in values.items() if key not in MOMENT and lookup(self.values, key).repeatable}

    @property
    def best_key(self) -> str | None:
        """Key of the value that is lowest for the best evaluation; None for a comparison or without a ranking."""
        return None if self.compared else self.fixed.get("best_key")

    @property
    def best(self) -> Mapping[str, Any] | None:
        """Best evaluation; None without a ranking."""
        ranked = [x for x in self.evaluations if self.best_key in x["values"] and "epoch" in x["values"]]
        return min(ranked, key=lambda x: float(x["values"][self.best_key]), default=None)

    @property
    def compared(self) -> bool:
        """Return True for a comparison of two sets of images, outside of any training."""
        return "generated_images" in self.fixed


def finite(values: Mapping[str, Any]) -> Record:
    """Keep the finite numbers; others become gaps in curves.

    Example:
        >>> finite({"image": 0.9, "mmd": float("nan"), "vendi": None})
        {'image': 0.9}
    """
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}


def _bands(baseline: Mapping[str, Sequence[float | None]]) -> dict[str, Band]:
    """Return the bands with finite ends, since those of extra metrics may not be finite."""
    bands = {name: finite(dict(zip("lmh", band, strict=True))) for name, band in baseline.items()}
    return {name: (band["l"], band["m"], band["h"]) for name, band in bands.items() if len(band) == 3}


@dataclass(frozen=True)
class Run:
    """Content of the folder of a run; `unreadable` has the reasons why files are left out."""

    monitors: list[MonitorRun]
    unreadable: list[str]


def find_folder(run: Path) -> Path:
    """Find the folder with the files of monitors, given itself or that of the run; the last of several versions.

    Raises:
        FileNotFoundError: If there is none, naming runs in subfolders if there are some.
    """
    for folder in (run, *reversed(versions_in(run, FOLDER))):
        if run_prefixes(own_files(folder)):
            return folder
    found = run.glob(f"**/{FOLDER}/*_run.json") if run.is_dir() else []
    below = sorted({path.parent.parent for path in found})
    hint = f" There are runs below it: {', '.join(map(str, below[:5]))}." if below else " Train with a monitor first."
    raise FileNotFoundError(f"Expected the folder of a run that a monitor evaluated, but got {run}.{hint}")


def versions_in(run: Path, name: str) -> list[Path]:
    """Return the folders name, name-v1, name-v2 … of a run, in this order.

    Example:
        >>> versions_in(Path("nowhere"), "genmonitor")
        []
    """
    numbered = ((path.name.removeprefix(f"{name}-v"), path) for path in run.glob(f"{name}-v*"))
    known = [(0, run / name), *((int(number), path) for number, path in numbered if number.isdecimal())]
    return [path for _, path in sorted(known) if path.is_dir()]


def read_run(folder: Path) -> Run:
    """Read the runs of all monitors in a folder."""
    files = {path.name: path for path in own_files(folder)}
    prefixes = run_prefixes(files.values())
    monitors: list[MonitorRun] = []
    unreadable: list[str] = []
    for prefix in sorted(prefixes):
        try:
            run = MonitorRun.read(files[f"{prefix}_run.json"])
            if run.prefix != prefix:
                raise ValueError(f"Expected a run of {prefix}, but {prefix}_run.json is of {run.prefix}. {REMEDY}")
            mine = [path for path in files.values() if owner(path, prefixes) == prefix]
            monitors.append(_with_pictures(run, mine, files, unreadable))
        except (OSError, ValueError) as error:
            unreadable.append(str(error))
    return Run(monitors, unreadable)


def _with_pictures(run: MonitorRun, mine: list[Path], files: Mapping[str, Path], unreadable: list[str]) -> MonitorRun:
    """Return a run with its partition and the pictures of its evaluations."""
    partition, name = None, run.fixed.get("partition")
    if isinstance(name, str) and name in files:  # none out of the folder
        try:
            partition = PixelPartition.load(files[name])
        except (OSError, ValueError) as error:
            unreadable.append(f"{name}: {error}")
    steps = {record.get("step") for record in run.records}
    pictures, strips = (_by_name(run.prefix, mine, suffix, steps) for suffix in (".png", ".webp"))
    return replace(run, partition=partition, pictures=pictures, strips=strips)


def _by_name(prefix: str, files: list[Path], suffix: str, steps: set[float | None]) -> dict[str, list[Picture]]:
    """Return the pictures by name, the oldest first."""
    found: dict[str, list[Picture]] = {}
    for path in files:
        name = path.stem.removeprefix(f"{prefix}_")
        match = BY_EPOCH.fullmatch(name)
        kind, epoch, step = (match[1], int(match[2]), int(match[3])) if match else (name, None, None)
        if path.suffix != suffix or (step is not None and step not in steps):
            continue
        about = _about(path) if suffix == ".webp" else {}
        if about is not None:
            found.setdefault(kind, []).append(Picture(path, epoch, step, about))
    return {kind: sorted(some, key=lambda x: -1 if x.step is None else x.step) for kind, some in found.items()}


def _about(path: Path) -> dict[str, Any] | None:
    """Return the content of the JSON file beside some images; None if it is missing."""
    try:
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        captions, distances = list(map(str, about["captions"])), list(map(float, about["distances"]))
        known = {"height": int(about["height"]), "nearest": bool(about["nearest"])}
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return {**known, "captions": captions, "distances": distances} if known["height"] > 0 else None
