# SPDX-License-Identifier: Apache-2.0
"""The folder in which a run's evaluations leave their files, with or without a Trainer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genmonitor._io import atomic_write, read_json, write_json
from genmonitor._manifest import versions
from genmonitor.report.contents import (
    BY_EPOCH,
    HISTORY,
    MANIFEST,
    REPORT,
    as_record,
    file_stem,
    find_prefixes,
    manifest_name,
    own_files,
    owner,
    safe,
)
from genmonitor.report.page import write_report
from genmonitor.report.pictures import describe_strip, encode_strip, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genmonitor.evaluation.results import ShownImages, Table
    from genmonitor.evaluation.values import ValueSpec
    from genmonitor.plotting.style import Drawing

_ARTIFACTS = (".npz", ".json", ".pt")


class RunFolder:
    """The files of a run: manifests, figures, tables, notes and the report.

    Whoever evaluates has a `prefix` of its own, with which the names of its files begin. Each file is written complete
    or not at all, and the folder is made where it is missing. In a distributed run only rank zero may write.

    Args:
        path: of the folder.

    Raises:
        OSError: by every method, if the disk does not take or give a file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def start(self, prefix: str, keep: int = 0) -> None:
        """Remove what an earlier run left under a prefix, so that the report shows one run.

        Args:
            prefix: of the files to remove; other prefixes' files stay.
            keep: how many evaluations stay, the first ones: those that a resumed run goes on from.
        """
        files, prefix = own_files(self.path), safe(prefix)
        prefixes = find_prefixes(files) | {prefix}
        mine = [path for path in files if owner(path, prefixes) == prefix]
        if keep:
            remove = _later_than(mine, keep)
        else:
            others = [path for path in files if owner(path, prefixes) != prefix]
            remove = {*mine, *(_named_by(mine) - _named_by(others)), self.path / REPORT, self.path / HISTORY}
        for path in remove:
            path.unlink(missing_ok=True)

    def write_figures(
        self, prefix: str, figures: Mapping[str, Figure | Drawing | bytes], step: int, epoch: int | None = None
    ) -> dict[str, Path]:
        """Write figures as PNG files.

        Args:
            prefix: as in the log keys.
            figures: by name, without prefix; or the PNG files that they give.
            step: the trainer's.
            epoch: None for figures of which only the latest is kept, ``cms_samples.png``; else a file for each
                evaluation, ``cms_samples_epoch_0003_step_1200.png``.

        Returns:
            Name to file.
        """
        written = {}
        for name, figure in figures.items():
            written[name] = self._file(f"{file_stem(f'{prefix}/{name}', step, epoch)}.png")
            atomic_write(written[name], figure if isinstance(figure, bytes) else render(figure))
        return written

    def draw(
        self, prefix: str, name: str, given: Figure | Drawing, step: int, epoch: int | None, writes: bool = True
    ) -> tuple[bytes, OSError | None]:
        """Render a figure and write it as `write_figures` does.

        Returns:
            The PNG file, and what went wrong with writing it: loggers can take the figure all the same.
        """
        rendered = render(given)
        try:
            if writes:
                self.write_figures(prefix, {name: rendered}, step, epoch)
        except OSError as error:
            return rendered, error
        return rendered, None

    def write_images(
        self, prefix: str, name: str, shown: ShownImages | None, step: int, epoch: int | None = None
    ) -> None:
        """Write images, if any, that the page shows one by one: a WebP file, and a JSON file about it.

        They are named as figures are.
        """
        if shown is not None:
            stem = file_stem(f"{prefix}/{name}", step, epoch)
            atomic_write(self._file(f"{stem}.webp"), encode_strip(shown))
            self._write_json(f"{stem}.json", describe_strip(shown))

    def write_artifacts(self, write: Callable[[Path], None]) -> None:
        """Write the files that an evaluator's manifests refer to: `write` is told the folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        write(self.path)

    def write_table(self, prefix: str, name: str, table: Table, step: int, epoch: int | None = None) -> Path:
        """Write the text and numbers of a table as a JSON list with a dictionary per row, named as figures are."""
        kept = table.without_pictures()
        rows = [dict(zip(kept.columns, row, strict=True)) for row in kept.rows]
        return self._write_json(f"{file_stem(f'{prefix}/{name}', step, epoch)}.json", rows)

    def write_values(self, prefix: str, values: Sequence[ValueSpec]) -> Path:
        """Write the declarations of the values in the history."""
        return self._write_json(f"{safe(prefix)}_values.json", {"values": [spec.to_dict() for spec in values]})

    def write_notes(self, prefix: str, notes: Sequence[Mapping[str, Any]]) -> None:
        """Write what the report should say, or remove the file if there is nothing to say.

        Args:
            prefix: whose notes they are.
            notes: each with "epoch" and "step" of its evaluation, both None if it holds for the whole run, and "text".
        """
        name = f"{safe(prefix)}_notes.json"
        if notes:
            self._write_json(name, [dict(note) for note in notes])
        else:
            (self.path / name).unlink(missing_ok=True)

    def write_manifest(self, prefix: str, number: int, manifest: Mapping[str, Any]) -> Path:
        """Write the manifest of an evaluation, with the versions of the packages it depends on.

        Args:
            prefix: as in the log keys.
            number: of the evaluation, counted from 1.
            manifest: its values under "evaluation", what it found under "findings" and in one line under "message",
                the heading of its section under "title", baselines as low, median and high under "baseline",
                the name of the partition's file under "partition", and whatever else is
                needed to evaluate the same again. A comparison of two sets names them under "generated_images" and
                "real_images".
        """
        return self._write_json(manifest_name(prefix, number), {**manifest, "versions": versions()})

    def write_report(self) -> Path:
        """Write the page that shows all of it."""
        return write_report(self.path)

    def _write_json(self, name: str, content: Any) -> Path:
        path = self._file(name)
        write_json(path, content)
        return path

    def _file(self, name: str) -> Path:
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path / name


def _later_than(files: Sequence[Path], keep: int) -> set[Path]:
    """Return the manifests, figures and tables of evaluations after the first so many."""
    numbers = {path: int(match[2]) for path in files if (match := MANIFEST.fullmatch(path.name))}
    later = {path for path, number in numbers.items() if number > keep}
    kept = [as_record(_read(path).get("evaluation")) for path in numbers if path not in later]
    last = max((record["step"] for record in kept if "step" in record), default=math.inf)
    dated = {path: int(match[3]) for path in files if (match := BY_EPOCH.fullmatch(path.stem))}
    return later | {path for path, step in dated.items() if step > last}


def _named_by(files: Sequence[Path]) -> set[Path]:
    """Return the files that manifests refer to, such as the partition's."""
    values = [value for path in files if MANIFEST.fullmatch(path.name) for value in _read(path).values()]
    names = {value for value in values if isinstance(value, str) and value.endswith(_ARTIFACTS)}
    return {files[0].parent / name for name in names if Path(name).name == name}


def _read(path: Path) -> dict[str, Any]:
    content = read_json(path)
    return content if isinstance(content, dict) else {}  # an earlier run may have left anything
