# SPDX-License-Identifier: Apache-2.0
"""Reader of the prompts of a set of outputs, each matched to its output."""

from __future__ import annotations

import csv
import io
import json
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genmonitor.cli.outputs import ARRAY_SUFFIXES, Outputs, cut, read_array, split_key

HELP = (
    "prompt of each output. Either a text file with one per line or an array of class labels, in the "
    "order of the files' paths (2.png before 10.png) or of the rows. Or lines of JSON or a CSV file with a column "
    "`prompt`, matched by a column `file_name` or else in that order. Or `folders`, the name of each image's folder"
)


@dataclass(frozen=True, eq=False)
class PromptRows:
    """Prompts of a set of outputs, one for each.

    Attributes:
        values: Prompts: strings, or class labels as integers.
        notes: Notes on the files of the first prompts, if the match depends on their order.
    """

    values: list[Any]
    notes: tuple[str, ...] = ()

    @property
    def are_texts(self) -> bool:
        """True if the prompts are texts, not class labels."""
        return isinstance(self.values[0], str)

    def __add__(self, other: PromptRows) -> PromptRows:
        """Append the prompts of another set."""
        kinds = [type(x.values[0]).__name__ for x in (self, other)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"Expected prompts of one kind on both sides, but got {kinds[0]} and {kinds[1]}.")
        return PromptRows([*self.values, *other.values], self.notes + other.notes)


def check_has_prompts(args: Namespace, *names: str) -> None:
    """Refuse options of prompts where there are none, since they would change nothing."""
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) is not None]
    if args.prompts is None and given:
        raise ValueError(f"Expected --prompts with {given[0]}, but got none. Leave {given[0]} out.")


def read_prompts(where: str | None, outputs: Outputs) -> PromptRows | None:
    """Read the prompts of some outputs.

    Args:
        where: Source of the prompts, see `HELP`; None for no prompts.
        outputs: Outputs of the prompts.

    Returns:
        One prompt for each output; None without prompts.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or there is not one prompt for each output.
    """
    if where is None:
        return None
    if where == "folders":
        return PromptRows(_folders(outputs))
    path, key = split_key(where)
    if not path.is_file():
        found = f"there is no {where}"
        if path.is_dir():
            found = f"{where} is a folder; give `folders` where the images' folders are named after their prompts"
        raise FileNotFoundError(f"Expected a file of prompts, but {found}.")
    if path.suffix in ARRAY_SUFFIXES:
        return _array(path, key, outputs)
    prompts, files = _rows(path)
    if files is not None:
        return PromptRows(_by_file(path, dict(zip(files, prompts, strict=True)), files, outputs))
    _check_count(path, len(prompts), outputs)
    return PromptRows(prompts, _order(outputs, prompts))


def _folders(outputs: Outputs) -> list[str]:
    folders = [Path(name).parent.as_posix() for name in outputs.names]
    if outputs.images is None or "." in folders:
        raise ValueError(
            f"Expected each image of {outputs.where} in a folder named after its prompt or class, but got "
            f"{outputs.names[folders.index('.')] if '.' in folders else outputs.kind}. Give a file instead."
        )
    return folders


def _array(path: Path, key: str | None, outputs: Outputs) -> PromptRows:
    values = read_array(path, key, ("prompts", "labels", "label", "y", "arr_0"))
    if values.shape[1:] == (1,):
        values = values[:, 0]
    if values.ndim != 1 or values.is_floating_point():
        raise ValueError(
            f"Expected class labels, whole numbers [n], but {path} holds {list(values.shape)}, "
            f"{str(values.dtype).removeprefix('torch.')}."
        )
    _check_count(path, len(values), outputs)
    return PromptRows(values.tolist(), _order(outputs, values.tolist()))


def _rows(path: Path) -> tuple[list[str], list[str] | None]:
    """Return the prompts of a file, and the names of the outputs' files if it has them."""
    if path.suffix in (".jsonl", ".json"):
        rows: Sequence[Any] = read_json_lines(path)
    elif path.suffix == ".csv":
        rows = read_csv(path)
    else:
        rows = split_lines(read_text(path))
    if not rows:
        raise ValueError(f"Expected prompts, but {path} has no row of them.")
    keys = ("prompt", "question", "caption", "label", "class", "text")
    lines = [{keys[0]: row} if isinstance(row, str) else row for row in rows]
    prompts = [pick(line, keys) if isinstance(line, dict) else None for line in lines]
    for number, prompt in enumerate(prompts, start=1):
        if prompt is None or not str(prompt).strip():
            raise ValueError(
                f"Expected a prompt in each row of {path}, but row {number} has none. The column or key that holds "
                f"it may be called {', '.join(keys)}."
            )
    names = ("file_name", "file", "filename", "image", "path")
    files = [pick(row, names) if isinstance(row, dict) else None for row in rows]
    if any(files) and not all(files):
        row = [bool(file) for file in files].index(False) + 1
        raise ValueError(f"Expected `file_name` in each row of {path} or in none, but row {row} has none.")
    return [str(prompt) for prompt in prompts], [str(file) for file in files] if all(files) else None


def _check_count(path: Path, count: int, outputs: Outputs) -> None:
    if count != len(outputs):
        raise ValueError(
            f"Expected one prompt for each of the {len(outputs)} {outputs.kind} of {outputs.where}, in the same order, "
            f"but {path} holds {count}. Give as many, or add a column `file_name` with the file of each."
        )


def _order(outputs: Outputs, prompts: Sequence[object]) -> tuple[str, ...]:
    """Return a note that lets the user check that files and prompts are in the same order."""
    if not Path(outputs.where).is_dir():
        return ()
    first = [f"{cut(prompt, 40)!r} to {name}" for name, prompt in zip(outputs.names[:2], prompts, strict=False)]
    return (f"prompts belong to the files of {outputs.where} in the order of their paths, {', '.join(first)}",)


def _by_file(path: Path, prompts: dict[str, str], files: list[str], outputs: Outputs) -> list[str]:
    """Return the prompt of each image, looked up by the path of its file in the folder or by its name alone."""
    names = [name if name in prompts else Path(name).name for name in outputs.names]
    problems = {
        "has more than one row for": [file for file, count in Counter(files).items() if count > 1],
        "has no row for": [name for name, found in zip(outputs.names, names, strict=True) if found not in prompts],
        "does not say which folder the file is in:": [name for name, count in Counter(names).items() if count > 1],
    }
    for problem, found in problems.items():
        if found:
            raise ValueError(
                f"Expected a row for each of the {outputs.kind} of {outputs.where} by its file, but {path} {problem} "
                f"{', '.join(found[:3])}."
            )
    return [prompts[name] for name in names]


def read_json_lines(path: Path) -> list[Any]:
    """Read a file of one JSON value per line; empty lines are skipped.

    Raises:
        ValueError: If a line is not a JSON value, with its number.
    """
    out = []
    for number, line in enumerate(split_lines(read_text(path)), start=1):
        try:
            out += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Expected JSON in line {number} of {path}, but got {line[:60]!r}: {error}") from error
    return out


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Read a file of comma-separated values, whose first row names the columns.

    Raises:
        ValueError: If a quote is not closed, or a row has more values than columns.
    """
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    rows = []
    try:
        for row in reader:
            if any(value.strip() for value in row.pop(None, [])):  # type: ignore[call-overload]
                raise csv.Error(f"it has more values than the {len(row)} columns of the first row")
            rows.append(row)
    except csv.Error as error:
        raise ValueError(
            f"Expected rows of separated values in {path}, but cannot read row {len(rows) + 1}: {error}. Put values "
            "that contain a comma or a line break between quotes."
        ) from error
    return rows


def read_text(path: Path) -> str:
    """Read a text file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"Expected text in UTF-8, but {path} holds something else: {error}") from error


def split_lines(text: str) -> list[str]:
    """Split a text only at line feeds; unlike in `str.splitlines`, U+2028 and the like are part of a line."""
    return text.removesuffix("\n").split("\n") if text else []


def pick(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Return the value of a row under the first of the names that it has; None if it has none."""
    return next((row[name] for name in names if row.get(name) is not None), None)
