# SPDX-License-Identifier: Apache-2.0
"""Several runs, such as the tasks of an array job, merged into one history."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from genmonitor._io import read_json
from genmonitor.evaluation.results import Table
from genmonitor.report.files import BY_EPOCH, FOLDER, own_files, owner, run_file
from genmonitor.report.folder import RunFolder
from genmonitor.report.page import write_report
from genmonitor.report.run import MonitorRun, find_folder, read_run

SAME = ("monitor", "settings", "seed", "n_samples", "prompts", "linkage", "weights", "module", "data")
"""What evaluations must agree on, besides the regions and the real images."""
NOTE = "Separate runs made these evaluations: alerts, and changes since the best evaluation, are those of each run."


class _Part(NamedTuple):
    """An evaluation, and the run that it is of, in the folder that holds its files."""

    folder: Path
    run: MonitorRun
    evaluation: Mapping[str, Any]

    @property
    def step(self) -> float:
        return float(self.evaluation["values"]["step"])


def merge_runs(runs: Sequence[Path], out: Path) -> Path:
    """Write the evaluations of several runs as one run, ordered by step; return its page.

    Args:
        runs: folders of runs that evaluated checkpoints of one training with the same settings.
        out: the folder of the merged run; an earlier merge there is replaced once this one is complete.

    Raises:
        FileNotFoundError: if a folder has no evaluations.
        ValueError: if settings differ, two runs evaluated the same step, a run is damaged, or one is in `out`.
    """
    folders, target = [find_folder(run) for run in runs], out / FOLDER
    if target.resolve() in (folder.resolve() for folder in folders):
        raise ValueError(f"Expected `--out` apart from the runs, but got {out}. Give another folder.")
    parts: dict[str, list[_Part]] = {}
    for folder in folders:
        found = read_run(folder)
        if found.unreadable:
            raise ValueError(" ".join(found.unreadable))
        for run in found.monitors:
            parts.setdefault(run.prefix, []).extend(_Part(folder, run, x) for x in run.evaluations)
    for prefix in parts:
        parts[prefix].sort(key=lambda part: part.step)
        _check(parts[prefix])
    out.mkdir(parents=True, exist_ok=True)
    for prefix, ordered in sorted(parts.items()):
        with TemporaryDirectory(prefix=".genmonitor-", dir=out) as aside:
            _write(RunFolder(aside), ordered, target)
            RunFolder(target).take(Path(aside), prefix)
    return write_report(target)


def _check(parts: Sequence[_Part]) -> None:
    """Refuse evaluations that do not make one history."""
    for one, other in pairwise(parts):
        where = f"{one.folder.parent} and {other.folder.parent}"
        if one.step == other.step:
            raise ValueError(f"Expected each step once, but {where} both evaluated step {one.step:g}. Leave one out.")
        differ = [key for key in SAME if _held(one).get(key) != _held(other).get(key)]
        differ += [] if one.run.partition == other.run.partition else ["partition"]
        differ += [] if _real_images(one) == _real_images(other) else ["real"]
        if differ:
            raise ValueError(
                f"Expected runs with the same settings, but {where} differ in {', '.join(differ)}. Evaluate both "
                "again with the same settings, real images and `partition`."
            )


def _held(part: _Part) -> dict[str, Any]:
    return {**part.run.fixed, **part.evaluation}


def _real_images(part: _Part) -> list[Any]:
    """Return which real images were compared with."""
    found = read_json(part.folder / str(part.run.fixed.get("real")))
    return [found.get(name) for name in ("from", "indices")] if isinstance(found, dict) else []


def _write(merged: RunFolder, parts: Sequence[_Part], target: Path) -> None:
    """Write the evaluations as one run, with the pictures of each; what has no step is that of the last."""
    last = parts[-1].run
    runs = {part.folder: part.run for part in parts}
    for folder, run in runs.items():
        files = own_files(folder)
        prefixes = [other.prefix for other in read_run(folder).monitors]
        for path in files:
            mine = owner(path, prefixes) == run.prefix and path.name != run_file(run.prefix)
            if mine and (BY_EPOCH.fullmatch(path.stem) or run is last):
                shutil.copyfile(path, merged.path / path.name)
    notes = dict.fromkeys(note for run in runs.values() for note in run.notes)
    merged.write_run(
        last.fixed["prefix"],
        fixed={**last.fixed, "folder": str(target)},
        evaluations=[part.evaluation for part in parts],
        declared=list(last.values.values()),
        findings=last.findings,
        notes=[*map(asdict, notes), {"text": NOTE}],
        tables={table.name: Table(table.columns, table.rows) for table in last.tables},
    )
