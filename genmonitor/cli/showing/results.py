# SPDX-License-Identifier: Apache-2.0
"""The folder of a result: a new one for each, and complete or not there."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from genmonitor._formatting import as_sentence
from genmonitor.cli.arguments import given_path
from genmonitor.evaluation.results import Table
from genmonitor.report.folder import RunFolder
from genmonitor.report.run import read_run

FOLDER = "genmonitor"


def add_out_argument(parser: argparse.ArgumentParser, command: str) -> None:
    """Say where a command writes."""
    parser.add_argument(
        "--out",
        type=given_path,
        metavar="FOLDER",
        help=f"where to, in place of an earlier result there (default: a new folder, runs/{command}/version_0, "
        "version_1 ...)",
    )


def check_out(out: Path | None) -> None:
    """Refuse what is no folder, or one with what a training run left."""
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"Expected --out to be a folder, but {out} is a file.")
    if out is not None and any("generated_images" not in run.manifest for run in read_run(out / FOLDER).monitors):
        raise ValueError(f"Expected --out to be a folder of results, but {out} holds a training run's files.")


def write_result(out: Path | None, command: str, prefix: str, write: Callable[[RunFolder], None]) -> dict[str, Any]:
    """Write the files of a result and its page; where that fails or is interrupted, none of them.

    Args:
        out: the folder; None for a new one.
        command: what wrote it.
        prefix: of the files.
        write: fills an empty folder.

    Returns:
        `report`, the page's path, and `replaced`, whether there was an earlier result in its place.
    """
    parent = Path("runs") / command if out is None else out.parent
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".genmonitor-", dir=parent) as aside:
        write(RunFolder(aside))
        place = _new_version(parent) if out is None else out
        folder = RunFolder(place / FOLDER)
        replaced = any(run.prefix == prefix for run in read_run(folder.path).monitors)
        folder.start(prefix)
        folder.path.mkdir(parents=True, exist_ok=True)
        for file in Path(aside).iterdir():
            os.replace(file, folder.path / file.name)
    return {"report": str(folder.write_report()), "replaced": replaced}


def where_to_look(result: Mapping[str, Any]) -> str:
    """Say where the page is, and whether another one was there before."""
    return f"Report: {result['report']}{', in place of an earlier one' if result['replaced'] else ''}"


def write_about(
    folder: RunFolder, prefix: str, about: Mapping[str, str], notes: list[str], manifest: Mapping[str, Any]
) -> None:
    """Write what a page says of a result beside its figures and tables."""
    folder.write_about(prefix, {}, about)
    folder.write_notes(prefix, [{"epoch": None, "step": None, "text": as_sentence(note)} for note in notes])
    folder.write_manifest(prefix, 1, manifest)


def as_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return rows of one kind as a table, lists in a cell joined."""
    cells = [["; ".join(map(str, x)) if isinstance(x, list) else x for x in row.values()] for row in rows]
    return Table(list(rows[0]) if rows else [], cells)


def _new_version(parent: Path) -> Path:
    """Make the folder after the last version."""
    taken = [path.name.removeprefix("version_") for path in parent.glob("version_*")]
    number = max((int(name) for name in taken if name.isdigit()), default=-1) + 1
    while True:
        place = parent / f"version_{number}"
        try:
            place.mkdir()
        except FileExistsError:  # another command was faster
            number += 1
        else:
            return place
