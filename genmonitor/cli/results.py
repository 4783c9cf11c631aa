# SPDX-License-Identifier: Apache-2.0
"""A command that measures outputs: its steps, its folder with a page, and its text for the terminal."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from matplotlib.figure import Figure

from genmonitor._formatting import as_sentence
from genmonitor._io import Progress, signals_deferred
from genmonitor._manifest import versions
from genmonitor.cli.arguments import nonempty, nonempty_path
from genmonitor.cli.encoding import add_encoder_arguments, default_device, encode, encoder_range
from genmonitor.cli.outputs import OUTPUTS, Outputs, read_outputs
from genmonitor.cli.processes import show_progress
from genmonitor.cli.prompts import HELP, PromptRows
from genmonitor.distributed import current_processes
from genmonitor.evaluation.evaluator import Evaluator
from genmonitor.evaluation.results import ShownImages
from genmonitor.findings.finding import Finding
from genmonitor.findings.tables import FORMATS, Table, formatted, on_screen
from genmonitor.findings.values import ValueSpec
from genmonitor.plotting.style import Drawing
from genmonitor.report.files import FOLDER
from genmonitor.report.folder import RunFolder
from genmonitor.report.run import read_run

Result = dict[str, Any]
"""Output of `--json`."""
CHANCE = "(chance)"
"""Cell of a row that is no larger than by chance, which a terminal leaves out."""


@dataclass(frozen=True)
class Measurement:
    """Result of a command: all that its page and its output show.

    Attributes:
        title: Heading of its section on the page.
        findings: Findings, the main one first.
        values: Measured values, by key.
        specs: Declarations of the values.
        split: Description of the measured data, in one sentence.
        rows: Rows of tables by name, the most important first: entries of the result, and tables of the page.
        figures: Figures of the page, by name.
        notes: Notes for the user, in sentences.
        evaluator: Evaluator that writes the files that the manifest refers to.
        tables: Further tables of the page.
        images: Images that the page shows one by one, by name.
    """

    title: str
    findings: Sequence[Finding]
    values: Mapping[str, Any]
    specs: Sequence[ValueSpec]
    split: str
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    figures: Mapping[str, Figure | Drawing]
    notes: Sequence[str]
    evaluator: Evaluator[Any]
    tables: Mapping[str, Table] = field(default_factory=dict)
    images: Mapping[str, ShownImages | None] = field(default_factory=dict)


def add_input_arguments(parser: ArgumentParser, outputs: str, prompts: str = HELP, others: str = "") -> None:
    """Add the arguments for outputs and prompts.

    Args:
        parser: Parser of the command.
        outputs: Description of the outputs for the help.
        prompts: Help of --prompts.
        others: Help of a second set of outputs; empty for a command with one set.
    """
    parser.add_argument("outputs", metavar="OUTPUTS", type=nonempty, help=f"{outputs}: {OUTPUTS}")
    if others:
        parser.add_argument("others", metavar="OTHERS", type=nonempty, help=others)
    parser.add_argument("--prompts", metavar="FILE", type=nonempty, help=prompts)
    add_encoder_arguments(parser)


def add_out_argument(parser: ArgumentParser, command: str) -> None:
    """Add the option for the folder of the result."""
    default = f"(default: a new folder, runs/{command}/version_0, version_1 ...)"
    text = f"folder of the result, in place of an earlier result there {default}"
    parser.add_argument("--out", type=nonempty_path, metavar="FOLDER", help=text)
    parser.add_argument("--format", choices=FORMATS, help="print the tables alone, in this format")


def run_measurement(
    command: str,
    args: Namespace,
    places: Sequence[str],
    find_prompts: Callable[[Namespace, Sequence[Outputs]], PromptRows | None],
    measure: Callable[[Namespace, Sequence[Outputs], PromptRows | None, Progress], Measurement],
) -> tuple[Result, str]:
    """Read outputs and prompts, encode and measure them, and write the result. Every process calls it.

    Args:
        command: Name of the command, also the prefix of its files.
        args: Arguments of the command line.
        places: Folders or files of the sets of outputs.
        find_prompts: Function that reads the prompts of these sets, and refuses invalid ones before encoding.
        measure: Function that measures the encoded sets.

    Returns:
        "finding", "values", the rows of the measurement, "notes", and the result of `write_result`; and the same as
        text.
    """
    comm = current_processes()
    check_out(args.out, places)
    with show_progress("reading") as progress, comm.all_ranks_or_none():
        sets: Sequence[Outputs] = [read_outputs(place, args.size, progress, skip_bad=args.skip_bad) for place in places]
        prompts = find_prompts(args, sets)
    with show_progress("encoding") as progress:
        sets = encode(args, sets, default_device(), comm, progress)
    with show_progress("measuring") as progress:
        found = measure(args, sets, prompts, progress)
    manifest = {"heading": " beside ".join(places), "n_samples": len(sets[0]), "value_range": encoder_range(args, sets)}
    names = {"generated_images": "outputs", "real_images": "real", "other_images": "others"}
    manifest |= {key: getattr(args, name, None) for key, name in names.items()}
    written = publish(args, command, command, found, manifest)
    result = {"finding": str(found.findings[0]), "values": found.values, **found.rows, "notes": found.notes, **written}
    tables = [_value_table(found), *(as_table(rows) for rows in found.rows.values() if rows)]
    return result, as_asked(args, tables, _as_text(found, result))


def as_asked(args: Namespace, tables: Sequence[Table], text: str) -> str:
    """Return the tables in the format asked for, or the text where none was."""
    return text if args.format is None else "\n\n".join(formatted(table, args.format) for table in tables)


def publish(args: Namespace, command: str, prefix: str, found: Measurement, manifest: Mapping[str, Any]) -> Result:
    """Write the result of a command, see `write_measurement` and `write_result`."""
    arguments = json.loads(json.dumps(vars(args), default=str))
    manifest = {"monitor": command, "arguments": arguments, **manifest}

    def write(folder: RunFolder) -> None:
        write_measurement(folder, prefix, found, manifest)

    with show_progress("writing the page"):
        return current_processes().from_rank_zero(lambda: write_result(args.out, command, prefix, write))


def _as_text(found: Measurement, result: Result) -> str:
    """Return a result for the terminal: the finding, a table of the values, and the first rows of each other table."""
    lines = [result["finding"], "", on_screen(_value_table(found)), ""]
    most = 20  # rows of a table in a terminal; the page has all
    for name, rows in found.rows.items():
        shown = [row for row in rows if CHANCE not in row.values()][:most]
        if shown:
            lines += [on_screen(as_table(shown)), ""]
        if len(rows) > len(shown):
            lines += [f"{len(rows) - len(shown)} more {name} on the page and with --json.", ""]
    lines += [f"Note: {as_sentence(note)}" for note in found.notes]
    return "\n".join([*lines, report_line(result)])


def _value_table(found: Measurement) -> Table:
    """Return the values with their standard errors and the values of real outputs, if known."""
    specs = [spec for spec in found.specs if spec.key in found.values]
    cells = {spec.key: spec.format(found.values[spec.key]) for spec in specs}
    errors = {spec.error_of: cells[spec.key] for spec in specs if spec.error_of}
    real = {spec.baseline_of: cells[spec.key] for spec in specs if spec.baseline_of}
    rows = [
        [spec.title, cells[spec.key], errors.get(spec.key, ""), real.get(spec.key, "")]
        for spec in specs
        if not spec.error_of and not spec.baseline_of
    ]
    baseline = "real" if any(spec.key.startswith("real_") for spec in specs) else "by chance"
    empty = [name for name, column in (("±", errors), (baseline, real)) if not column]
    return Table(["", "value", "±", baseline], rows).without(empty)


def write_measurement(folder: RunFolder, prefix: str, found: Measurement, manifest: Mapping[str, Any]) -> None:
    """Write a measurement: figures, tables, the evaluator's files, values, notes and the manifest.

    Args:
        folder: Folder to write into.
        prefix: Prefix of the files.
        found: Measurement.
        manifest: Entries of the manifest about the data.
    """
    folder.write_figures(prefix, found.figures, step=0)
    for name, shown in found.images.items():
        folder.write_images(prefix, name, shown, step=0)
    tables = {f"ranked {name}": as_table(rows) for name, rows in found.rows.items() if rows}
    folder.write_artifacts(found.evaluator.write_artifacts)
    evaluated = {**found.evaluator.manifest(), "settings": found.evaluator.settings.to_manifest()}
    evaluated |= {"best_key": found.evaluator.best_key, "title": found.title, "split": f"{found.split}.", **manifest}
    folder.write_run(
        prefix,
        fixed=evaluated,
        evaluations=[{"values": found.values, "message": str(found.findings[0]), "versions": versions()}],
        declared=found.specs,
        findings=found.findings,
        notes=[{"text": as_sentence(note)} for note in found.notes],
        tables={**tables, **found.tables},
    )


def report_line(result: Result) -> str:
    """Return the last line of a text, with the path of the page."""
    return f"Report: {result['report']}{', replacing an earlier one' if result['replaced'] else ''}"


def as_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return rows with the same keys as a table; lists in a cell are joined, and numbers have three decimals."""

    def cell(x: Any) -> Any:
        if isinstance(x, list):
            return "; ".join(map(str, x))
        return f"{x:.3f}" if isinstance(x, float) else "" if x is None else x

    return Table(list(rows[0]) if rows else [], [list(map(cell, row.values())) for row in rows])


def check_writable(out: Path, option: str = "--out") -> None:
    """Refuse a folder that is a file or cannot be written, before anything is measured."""
    place = next(path for path in (out, *out.parents) if path.exists())
    try:
        TemporaryDirectory(prefix=".genmonitor-", dir=place).cleanup()
    except OSError as error:
        raise ValueError(
            f"Expected {option} to be a folder that can be written, but got {out}: {error.strerror}. Give another one."
        ) from error


def check_out(out: Path | None, places: Sequence[str | None]) -> None:
    """Refuse a folder that cannot be written, that has a training run's files, or that is inside one of images."""
    where = Path("runs") if out is None else out
    for place in places:
        if place and Path(place).is_dir() and where.resolve().is_relative_to(Path(place).resolve()):
            raise ValueError(
                f"Expected --out to be apart from the images, but {where} is inside {place}: the next command would "
                "take the result's pictures for images. Give a folder elsewhere."
            )
    check_writable(where)
    if out is not None and any(not run.compared for run in read_run(out / FOLDER).monitors):
        raise ValueError(f"Expected --out to be a folder of results, but {out} holds a training run's files.")


def write_result(out: Path | None, command: str, prefix: str, write: Callable[[RunFolder], None]) -> Result:
    """Write the files of a result and its page, or none of them after an error or interruption.

    Args:
        out: Folder; None for a new one.
        command: Name of the command.
        prefix: Prefix of the files.
        write: Function that fills an empty folder.

    Returns:
        "report", the path of the page, and "replaced", True if there was an earlier result in its place.
    """
    parent = Path("runs") / command if out is None else out.parent
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".genmonitor-", dir=parent) as aside:
        write(RunFolder(aside))
        with signals_deferred():
            place = _new_version(parent) if out is None else out
            folder = RunFolder(place / FOLDER)
            replaced = any(run.prefix == prefix for run in read_run(folder.path).monitors)
            folder.take(Path(aside), prefix)
            return {"report": str(folder.write_report()), "replaced": replaced}


def _new_version(parent: Path) -> Path:
    """Make the folder after the last version."""
    taken = [path.name.removeprefix("version_") for path in parent.glob("version_*")]
    for number in count(max((int(name) for name in taken if name.isdigit()), default=-1) + 1):
        with suppress(FileExistsError):  # another command was faster
            (parent / f"version_{number}").mkdir()
            break
    return parent / f"version_{number}"
