# SPDX-License-Identifier: Apache-2.0
"""The folder with the files of the evaluations of a run, with or without a Trainer."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genmonitor._io import atomic_write, write_json
from genmonitor.report.files import file_stem, own_files, owner, run_file, run_prefixes, safe
from genmonitor.report.page import write_report
from genmonitor.report.pictures import OWN, as_svg, describe_strip, encode_strip, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genmonitor.evaluation.results import ShownImages
    from genmonitor.findings.finding import Finding
    from genmonitor.findings.tables import Table
    from genmonitor.findings.values import ValueSpec
    from genmonitor.plotting.style import Drawing


class RunFolder:
    """Files of a run: one for each monitor, figures, images and the report.

    Each monitor has its own `prefix`, with which its file names begin. Each file is written complete or not at all, and
    the folder is made if it is missing. In a distributed run only rank zero may write.

    Args:
        path: Path of the folder.

    Raises:
        OSError: By every method, if a file cannot be written or read.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def write_figures(
        self, prefix: str, figures: Mapping[str, Figure | Drawing | bytes], step: int, epoch: int | None = None
    ) -> dict[str, Path]:
        """Write figures as PNG files.

        Args:
            prefix: Prefix of the log keys.
            figures: Figures, or their PNG files, by name without prefix.
            step: Step of the Trainer.
            epoch: Epoch, for a file of each evaluation, ``cms_samples_epoch_0003_step_1200.png``. None for figures of
                which only the latest is kept, ``cms_samples.png``.

        Returns:
            Files by name.
        """
        written = {}
        for name, figure in figures.items():
            written[name] = self.file(f"{file_stem(f'{prefix}/{name}', step, epoch)}.png")
            atomic_write(written[name], figure if isinstance(figure, bytes) else render(figure))
            if not isinstance(figure, bytes):
                self.write_vector(prefix, name, figure, step, epoch)
        return written

    def write_vector(self, prefix: str, name: str, figure: Figure | Drawing, step: int, epoch: int | None) -> None:
        """Write a figure as an SVG file beside its PNG file, unless the page draws it itself."""
        if name not in OWN:
            atomic_write(self.file(f"{file_stem(f'{prefix}/{name}', step, epoch)}.svg"), as_svg(figure))

    def write_images(
        self, prefix: str, name: str, shown: ShownImages | None, step: int, epoch: int | None = None
    ) -> None:
        """Write images, if any, that the page shows one by one, as a WebP file and a JSON file with their data.

        They are named like figures.
        """
        if shown is not None:
            stem = file_stem(f"{prefix}/{name}", step, epoch)
            atomic_write(self.file(f"{stem}.webp"), encode_strip(shown))
            write_json(self.file(f"{stem}.json"), describe_strip(shown))

    def write_artifacts(self, write: Callable[[Path], None]) -> None:
        """Write the files that an evaluator's manifests refer to, by calling `write` with the folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        write(self.path)

    def write_run(
        self,
        prefix: str,
        *,
        fixed: Mapping[str, Any],
        evaluations: Sequence[Mapping[str, Any]],
        declared: Sequence[ValueSpec] = (),
        findings: Sequence[Finding] = (),
        notes: Sequence[Mapping[str, Any]] = (),
        tables: Mapping[str, Table] | None = None,
    ) -> Path:
        """Write the file of a run, which `MonitorRun` reads.

        Args:
            prefix: Prefix of the log keys.
            fixed: Fixed values of the run, such as the settings. "title" is the heading of its section, "baseline" the
                low, median and high baselines, and "partition" the name of the partition's file. A comparison of two
                sets has their names under "generated_images" and "real_images".
            evaluations: Evaluations, the oldest first, each with its "values", a "message", the "headlines" of its
                findings, and its circumstances.
            declared: Declarations of the values.
            findings: Findings of the last evaluation.
            notes: Notes, each with "text", "epoch", "step", "alert" and "since", see `Note`.
            tables: Tables of the last evaluation, by name, whose pictures are left out.
        """
        kept = {name: table.without_pictures() for name, table in (tables or {}).items()}
        content = {
            **fixed,
            "prefix": prefix,
            "evaluations": evaluations,
            "notes": notes,
            "tables": {name: {"columns": table.columns, "rows": table.rows} for name, table in kept.items()},
            "declared": [spec.to_dict() for spec in declared],
            "findings": [finding.to_dict() for finding in findings],
        }
        path = self.file(run_file(prefix))
        write_json(path, content)
        return path

    def write_report(self) -> Path:
        """Write the page."""
        return write_report(self.path)

    def take(self, aside: Path, prefix: str) -> None:
        """Move complete files from another folder, then remove those of an earlier result under a prefix."""
        before = self._mine(prefix)
        files = own_files(aside)
        for file in files:
            os.replace(file, self.file(file.name))
        for path in before:
            if path.name not in {file.name for file in files}:
                path.unlink(missing_ok=True)

    def _mine(self, prefix: str) -> list[Path]:
        files = own_files(self.path)
        return [path for path in files if owner(path, {*run_prefixes(files), safe(prefix)}) == safe(prefix)]

    def file(self, name: str) -> Path:
        """Return the path of a file, in an existing folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path / name


def free_folder(run: Path, name: str, prefixes: Collection[str]) -> Path:
    """Return the first of name, name-v1, name-v2 … without a run of these monitors.

    Args:
        run: Folder of the run.
        name: Name of the subfolder.
        prefixes: Prefixes of the monitors that share it.
    """
    for number in count():
        folder = run / (f"{name}-v{number}" if number else name)
        if not any((folder / run_file(prefix)).exists() for prefix in prefixes):
            return folder
    raise AssertionError  # there is always another number
