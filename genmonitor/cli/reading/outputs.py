# SPDX-License-Identifier: Apache-2.0
"""Reading what a model gave, with or without its prompts: images, embeddings or texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from genmonitor._validation import check_features
from genmonitor.cli.reading.arrays import read_array, split_key
from genmonitor.cli.reading.images import as_images, image_files, read_images
from genmonitor.evaluation.progress import Progress

OUTPUTS = (
    "a folder of image files; a file .npy, .npz, .pt or .safetensors of images, or of embeddings [n, d]; or lines of "
    'JSON {"prompt": ..., "output": ...} with texts'
)
TEXT_KEYS = ("output", "answer", "response", "completion", "text")
"""What the output may be called in a line of JSON."""
PROMPT_KEYS = ("prompt", "question", "caption", "label", "class", "text")
"""What the prompt may be called in a line of JSON, or in the head of a CSV file."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs of a model in the order in which they were read.

    Attributes:
        where: as it was given.
        names: of each output: its file in the folder, else its row, counted from 0.
        images: [n, C, H, W], where they are images.
        texts: where they are texts.
        features: [n, d], where they are embeddings, and of all once they are encoded.
        prompts: of each output, where they are in the same file.
    """

    where: str
    names: list[str]
    images: Tensor | None = None
    texts: list[str] | None = None
    features: Tensor | None = None
    prompts: list[str] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def kind(self) -> str:
        """What they are called in sentences."""
        return "images" if self.images is not None else "texts" if self.texts is not None else "embeddings"

    @property
    def title(self) -> str:
        """The last part of its path, for tables and figures."""
        return Path(self.where).name or self.where

    @property
    def shape(self) -> list[int] | None:
        """The shape of one of them; None of texts."""
        values = self.features if self.images is None else self.images
        return None if values is None else list(values.shape[1:])

    def shown(self, row: int, prompts: Sequence[object] | None = None, length: int = 60) -> str:
        """Return what stands for an output in a table: its text, cut where it is long, or its name and its prompt."""
        if self.texts is not None:
            return cut(self.texts[row], length)
        name = cut(self.names[row], length)
        return name if prompts is None else f"{name} ({cut(prompts[row], 40)})"


def cut(text: object, length: int) -> str:
    """Return a text as one line of at most so many characters, none of which moves a terminal's cursor."""
    line = "".join(character if character.isprintable() else "?" for character in " ".join(str(text).split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"


def read_outputs(where: str, size: int | None, progress: Progress) -> Outputs:
    """Read outputs.

    Args:
        where: a folder of image files; a file .npy, .npz, .pt or .safetensors of images, or of embeddings [n, d]; or
            lines of JSON (.jsonl), each with an output that is a text.
        size: images of a folder are cut to their central square and resized to this side.
        progress: shows how many files of a folder have been read.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it cannot be read, holds something else, or values that are not finite.
    """
    path, key = split_key(where)
    if path.is_dir():
        names = [file.relative_to(path).as_posix() for file in image_files(path)]
        return Outputs(where, names, images=read_images(where, size, progress=progress))
    if not path.exists():
        raise FileNotFoundError(
            "Expected a folder of image files, a file .npy, .npz, .pt or .safetensors, or lines of JSON (.jsonl), but "
            f"there is no {where}."
        )
    if size is not None:
        raise ValueError(
            f"Images are only resized where they come from a folder, but {path} is a file. Leave out --size."
        )
    if path.suffix in (".jsonl", ".json"):
        return _texts(where, path)
    values = read_array(path, key)
    names = [f"row {row}" for row in range(len(values) if values.ndim else 0)]
    if values.ndim == 2:
        return Outputs(where, names, features=check_features(f"embeddings of {path}", values))
    return Outputs(where, names, images=as_images(path, values))


def read_lines(path: Path) -> list[Any]:
    """Read a file of one JSON value per line, without empty lines.

    Raises:
        ValueError: if a line is none, naming it.
    """
    out = []
    for number, line in enumerate(split_lines(read_text(path)), start=1):
        try:
            out += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"Expected a JSON value in line {number} of {path}, but got {line[:60]!r}: {error}"
            ) from error
    return out


def read_text(path: Path) -> str:
    """Read a text file; raise ValueError if it is none."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"Expected text in UTF-8, but {path} holds something else: {error}") from error


def split_lines(text: str) -> list[str]:
    """Return the lines of a text; unlike `str.splitlines`, what a text may hold within a line, as U+2028, ends none."""
    return text.removesuffix("\n").split("\n") if text else []


def all_or_none(path: Path, name: str, values: Sequence[object]) -> bool:
    """Return whether each row of a file has an entry; raise ValueError if only some have."""
    lacking = [number for number, value in enumerate(values, start=1) if value is None or not str(value).strip()]
    if 0 < len(lacking) < len(values):
        raise ValueError(
            f"Expected `{name}` in each row of {path} or in none, but the {lacking[0]}. of {len(values)} has none. "
            "Add it there."
        )
    return not lacking


def pick(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Return the entry of a row under the first of some names that it has, None where it has none."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def _texts(where: str, path: Path) -> Outputs:
    rows = read_lines(path)
    texts = [pick(row, TEXT_KEYS) if isinstance(row, dict) else row for row in rows]
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise ValueError(
                f'Expected {{"prompt": …, "output": …}} per line of {path}, with a text as output, but the {number}. '
                f"has {str(rows[number - 1])[:60]}. Its name may also be {', '.join(TEXT_KEYS[1:])}."
            )
    if not texts:
        raise ValueError(f"Expected lines of JSON, but {path} is empty.")
    prompts = [pick(row, PROMPT_KEYS[:-1]) if isinstance(row, dict) else None for row in rows]
    known = [str(prompt) for prompt in prompts] if all_or_none(path, PROMPT_KEYS[0], prompts) else None
    names = [f"line {number}" for number in range(1, len(texts) + 1)]
    return Outputs(where, names, texts=texts, prompts=known)
