# SPDX-License-Identifier: Apache-2.0
"""Readers of files: arrays of numbers, without unpickling, and rows of text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ARRAY_SUFFIXES = (".npy", ".npz")


def split_key(where: str) -> tuple[Path, str | None]:
    """Split "data.npz:train_images" into the path and the name of the array; the name is None without a colon."""
    if not Path(where).exists() and ":" in where:
        name, _, key = where.rpartition(":")
        return Path(name), key
    return Path(where), None


def read_array(
    path: Path,
    key: str | None = None,
    names: Sequence[str] = ("images", "image", "pixel_values", "embeddings", "features", "arr_0"),
) -> Tensor:
    """Read an array of real numbers.

    Args:
        path: File .npy or .npz.
        key: Name of the array; None for the only one in the file, or the first of `names` that it holds.
        names: Names to search for, the preferred one first.

    Raises:
        ValueError: If the file cannot be read safely, the array is ambiguous, or it does not hold real numbers.
    """
    kinds = "a .npy or .npz file"
    if path.suffix not in ARRAY_SUFFIXES:
        raise ValueError(f"Expected {kinds}, but got {path}. Convert it, for example with numpy.save.")
    try:
        if path.suffix == ".npy":
            arrays = {"": np.lib.format.open_memmap(path, mode="c")}  # read where it is used
        else:
            with path.open("rb") as stream:  # numpy leaves a file open that it refuses
                members = np.load(stream, allow_pickle=False).items()
                arrays = {name: member for name, member in members if not isinstance(member, bytes)}
    except Exception as error:
        # numpy's message advises unpickling, which may run any code
        why = "it is no such file, or holds other objects" if "pickle" in str(error) else str(error).rstrip(".")
        raise ValueError(f"Expected {kinds} of plain numbers, but {path} is not: {why}. Write it again.") from error
    found = key or next((name for name in (*names, *arrays) if name in arrays), "nothing")
    ambiguous = key is None and len(arrays) > 1 and found not in names
    if found not in arrays or ambiguous:
        there = ", ".join(arrays) or "nothing"
        example = f"{path}:{next(iter(arrays), 'NAME')}"
        raise ValueError(f"Expected the name of one of the arrays in {path}: {there}. Give it as in {example}.")
    return _real_numbers(path, arrays[found])


def _real_numbers(path: Path, values: NDArray[Any]) -> Tensor:
    """Return an array as a tensor of a dtype for computations; refuse anything but real numbers."""
    if values.dtype.kind not in "fiu":
        raise ValueError(
            f"Expected real numbers, but {path} holds {values.dtype}. Convert them to floating point or to uint8 in "
            "0..255."
        )
    dtype = values.dtype.newbyteorder("=")
    if values.dtype.kind == "u" and values.dtype.itemsize > 1:
        dtype = np.dtype(np.int64)
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        dtype = np.dtype(np.float64)
    return torch.from_numpy(np.ascontiguousarray(values, dtype=dtype))


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
