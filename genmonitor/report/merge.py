# SPDX-License-Identifier: Apache-2.0
"""Several runs, such as the tasks of an array job, merged into one history."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from genmonitor._io import atomic_write, read_json
from genmonitor.partition import PixelPartition
from genmonitor.report.contents import (
    BY_EPOCH,
    FOLDER,
    MANIFEST,
    as_list,
    as_record,
    find_prefixes,
    own_files,
    owner,
)
from genmonitor.report.folder import RunFolder
from genmonitor.report.page import write_report
from genmonitor.report.run import find_folder

SAME = ("monitor", "settings", "seed", "n_samples", "prompts", "linkage", "weights", "module", "data")
"""What manifests must agree on, besides the regions and the real images."""
NOTE = "Separate runs made these evaluations: alerts, and changes since the best evaluation, are those of each run."


class _Part(NamedTuple):
    """An evaluation of a run, in the folder that holds its files."""

    step: float
    folder: Path
    manifest: Mapping[str, Any]


def merge_runs(runs: Sequence[Path], out: Path) -> Path:
    """Write the evaluations of several runs as one run, ordered by step; return its page.

    Args:
        runs: folders of runs that evaluated checkpoints of one training with the same settings.
        out: the folder of the merged run; an earlier merge there is replaced.

    Raises:
        FileNotFoundError: if a folder has no evaluations.
        ValueError: if settings differ, two runs evaluated the same step, a manifest is damaged, or a run is in `out`.
    """
    folders, target = [find_folder(run) for run in runs], out / FOLDER
    if target.resolve() in (folder.resolve() for folder in folders):
        raise ValueError(f"Expected `--out` apart from the runs, but got {out}. Give another folder.")
    prefixes = sorted({prefix for folder in folders for prefix in find_prefixes(own_files(folder))})
    merged = {prefix: _ordered(prefix, folders) for prefix in prefixes}
    written = RunFolder(target)
    target.mkdir(parents=True, exist_ok=True)
    for prefix, parts in merged.items():
        written.start(prefix)
        for folder in dict.fromkeys(part.folder for part in parts):  # files without a step: those of the last
            for path in own_files(folder):
                mine = owner(path, prefixes) == prefix and not MANIFEST.fullmatch(path.name)
                if mine and (BY_EPOCH.fullmatch(path.stem) or folder == parts[-1].folder):
                    atomic_write(target / path.name, path.read_bytes())
        notes = [note for folder in dict.fromkeys(x.folder for x in parts) for note in _notes(folder, prefix)]
        once = {json.dumps(note, sort_keys=True): note for note in notes}
        written.write_notes(prefix, [*once.values(), {"epoch": None, "step": None, "text": NOTE}])
        for number, part in enumerate(parts, 1):
            written.write_manifest(prefix, number, {**part.manifest, "folder": str(target)})
    return write_report(target)


def _ordered(prefix: str, folders: Sequence[Path]) -> list[_Part]:
    """Return the evaluations under a prefix, ordered by step; refuse those that do not make one history."""
    parts: list[_Part] = []
    for folder in folders:
        for path in own_files(folder):
            if (match := MANIFEST.fullmatch(path.name)) and match[1] == prefix:
                manifest = read_json(path)
                record = as_record(manifest.get("evaluation")) if isinstance(manifest, dict) else {}
                if "step" not in record:
                    raise ValueError(f"Expected a manifest of an evaluation, but {path} is damaged. Remove it.")
                parts.append(_Part(record["step"], folder, manifest))
    parts.sort(key=lambda part: part.step)
    for one, other in pairwise(parts):
        where = f"{one.folder.parent} and {other.folder.parent}"
        if one.step == other.step:
            raise ValueError(f"Expected each step once, but {where} both evaluated step {one.step:g}. Leave one out.")
        differ = [key for key in SAME if one.manifest.get(key) != other.manifest.get(key)]
        differ += [key for key in ("partition", "real") if _artifact(one, key) != _artifact(other, key)]
        if differ:
            raise ValueError(
                f"Expected runs with the same settings, but {where} differ in {', '.join(differ)}. Evaluate both "
                "again with the same settings, real images and `partition`."
            )
    return parts


def _artifact(part: _Part, key: str) -> Any:
    """Return what must agree of a file that a manifest names: the regions, or the indices of the real images."""
    name = part.manifest.get(key)
    path = part.folder / str(name)
    if not name or not path.is_file():
        return None
    if path.suffix == ".npz":
        partition = PixelPartition.load(path)
        return partition.labels.tolist(), partition.patch_size
    return [json.loads(path.read_text(encoding="utf-8")).get(of) for of in ("from", "indices")]


def _notes(folder: Path, prefix: str) -> list[dict[str, Any]]:
    path = folder / f"{prefix}_notes.json"
    return [note for note in as_list(read_json(path) if path.is_file() else None) if isinstance(note, dict)]
