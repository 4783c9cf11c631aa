# SPDX-License-Identifier: Apache-2.0
"""Readers of sets of images, and of any outputs of a model: images, embeddings or texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from genmonitor._io import Progress, terminal_progress
from genmonitor._validation import check_features, check_images
from genmonitor.cli.arguments import IMAGES
from genmonitor.cli.inputs.files import all_or_none, pick, read_array, read_json_lines, split_key

if TYPE_CHECKING:
    from PIL.Image import Image

OUTPUTS = (
    "a folder of image files; a file .npy, .npz, .pt or .safetensors of images, or of embeddings [n, d]; or lines of "
    'JSON {"prompt": ..., "output": ...} with texts'
)
TEXT_KEYS = ("output", "answer", "response", "completion", "text")
"""Names of the output in a line of JSON."""
PROMPT_KEYS = ("prompt", "question", "caption", "label", "class", "text")
"""Names of the prompt in a line of JSON, or of its column in a CSV file."""
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}


@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs of a model, in the order in which they were read.

    Attributes:
        where: their folder or file, as given.
        names: of each output: its file in the folder, else its row, counted from 0.
        images: [n, C, H, W]; None if the outputs are no images.
        texts: one per output; None if the outputs are no texts.
        features: [n, d]: the embeddings, or what the encoder made of images or texts; None before.
        prompts: one per output, where the same file holds them.
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
        """The word for the outputs in sentences."""
        return "images" if self.images is not None else "texts" if self.texts is not None else "embeddings"

    @property
    def title(self) -> str:
        """The last part of the path, for tables and figures."""
        return Path(self.where).name or self.where

    @property
    def shape(self) -> list[int] | None:
        """The shape of one output; None for texts."""
        values = self.features if self.images is None else self.images
        return None if values is None else list(values.shape[1:])

    def label(self, row: int, prompts: Sequence[object] | None = None) -> str:
        """Return a label for one output in a table: its text, cut if it is long, or its name and its prompt."""
        if self.texts is not None:
            return cut(self.texts[row], 60)
        name = cut(self.names[row], 60)
        return name if prompts is None else f"{name} ({cut(prompts[row], 40)})"


def cut(text: object, length: int) -> str:
    """Return a text as one line of at most `length` characters, none of which moves a terminal's cursor."""
    line = "".join(character if character.isprintable() else "?" for character in " ".join(str(text).split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"


def read_outputs(where: str, size: int | None, progress: Progress) -> Outputs:
    """Read the outputs of a model.

    Args:
        where: a folder of image files; a file .npy, .npz, .pt or .safetensors of images, or of embeddings [n, d]; or
            lines of JSON (.jsonl), each with an output that is a text.
        size: images of a folder are cropped to their central square and resized to this side.
        progress: shows how many files of a folder have been read.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it cannot be read, holds something else, or values that are not finite.
    """
    path, key = _locate(where, size, OUTPUTS)
    if path.is_dir():
        names = [file.relative_to(path).as_posix() for file in image_files(path)]
        return Outputs(where, names, images=_read_folder(path, size, progress))
    if path.suffix in (".jsonl", ".json"):
        return _read_texts(where, path)
    values = read_array(path, key)
    names = [f"row {row}" for row in range(len(values) if values.ndim else 0)]
    if values.ndim == 2:
        return Outputs(where, names, features=check_features(f"embeddings of {path}", values))
    return Outputs(where, names, images=_as_images(path, values))


def read_images(where: str, size: int | None = None, progress: Progress = terminal_progress) -> Tensor:
    """Read a set of images.

    Args:
        where: a folder of image files, searched through; or a file .npy, .npz, .pt or .safetensors of [N, C, H, W],
            [N, H, W, C] or [N, H, W]. Of several arrays in a file the one called "images", or that named behind a
            colon, as in "data.npz:train_images".
        size: images of a folder are cropped to their central square and resized to this side.
        progress: shows how many files of a folder have been read.

    Returns:
        Images [N, C, H, W]; 8 bits per channel become float32 in [0, 1]. Pictures are as a viewer shows them: upright,
        by the orientation that their camera noted, and with transparent parts over white.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it holds no images, images of different sizes without `size`, or a file that cannot be read, that
            has several frames, or more than 8 bits per channel.
    """
    path, key = _locate(where, size, IMAGES)
    return _read_folder(path, size, progress) if path.is_dir() else _as_images(path, read_array(path, key))


def _locate(where: str, size: int | None, expected: str) -> tuple[Path, str | None]:
    """Return the path, which exists, and the name of the array in it, if one was given."""
    path, key = split_key(where)
    if not path.exists():
        raise FileNotFoundError(f"Expected {expected}, but there is no {where}.")
    if size is not None and not path.is_dir():
        raise ValueError(f"Only a folder's images are resized, but {path} is a file. Leave out --size.")
    return path, key


def _read_texts(where: str, path: Path) -> Outputs:
    rows = read_json_lines(path)
    texts = [pick(row, TEXT_KEYS) if isinstance(row, dict) else row for row in rows]
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise ValueError(
                f'Expected {{"prompt": …, "output": …}} per line of {path}, with a text as output, but row {number} '
                f"is {str(rows[number - 1])[:60]}. The output may also be called {', '.join(TEXT_KEYS[1:])}."
            )
    if not texts:
        raise ValueError(f"Expected lines of JSON, but {path} is empty.")
    prompts = [pick(row, PROMPT_KEYS[:-1]) if isinstance(row, dict) else None for row in rows]
    known = [str(prompt) for prompt in prompts] if all_or_none(path, PROMPT_KEYS[0], prompts) else None
    names = [f"line {number}" for number in range(1, len(texts) + 1)]
    return Outputs(where, names, texts=texts, prompts=known)


def _as_images(path: Path, values: Tensor) -> Tensor:
    """Return the array of a file as images [N, C, H, W]."""
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim == 4 and values.shape[3] in (1, 3, 4) and min(values.shape[1:3]) > 4:
        values = values.permute(0, 3, 1, 2)
    return check_images(f"images of {path}", values)


def image_files(path: Path) -> list[Path]:
    """List the image files under a folder in the order in which they are read: by their paths, 2.png before 10.png.

    Raises:
        FileNotFoundError: if there are none.
    """
    files = sorted((file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES), key=_natural_order)
    if not files:
        kinds = ", ".join(sorted(IMAGE_SUFFIXES))
        raise FileNotFoundError(f"Expected image files ({kinds}) under {path}, but found none.")
    return files


def _natural_order(file: Path) -> tuple[list[list[str | int]], Path]:
    """Return a key that sorts paths with runs of digits as numbers."""
    parts = [re.split(r"([0-9]+)", part) for part in file.parts]
    return [[int(x) if place % 2 else x for place, x in enumerate(part)] for part in parts], file


def _read_folder(path: Path, size: int | None, progress: Progress) -> Tensor:
    from PIL import Image, ImageOps

    arrays = []
    for file in progress(image_files(path), f"reading {path.name}"):
        picture = _read_picture(file)
        if size is not None:
            picture = ImageOps.fit(picture, (size, size), Image.Resampling.BILINEAR)
        arrays.append(np.asarray(picture))
    sizes = {array.shape[:2] for array in arrays}
    if len(sizes) > 1:
        some = ", ".join(f"{h}×{w}" for h, w in sorted(sizes)[:3])
        raise ValueError(f"Expected images of one size, but {path} holds {some}. Give --size to resize them.")
    if len({array.ndim for array in arrays}) > 1:  # gray and colored ones together
        arrays = [np.stack([array] * 3, axis=2) if array.ndim == 2 else array for array in arrays]
    values = torch.from_numpy(np.stack(arrays))
    return check_images(f"images of {path}", values[:, None] if values.ndim == 3 else values.permute(0, 3, 1, 2))


def _read_picture(file: Path) -> Image:
    """Return a picture as a viewer shows it, gray (mode L) or in color (RGB)."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as image:
            frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)  # an MPO's others are previews
            deep = image.mode[0] in "IF"
            if frames == 1 and not deep:
                image.load()
                return _opaque(ImageOps.exif_transpose(image))
    except Exception as error:  # pillow's decoders raise anything, and often without the file's name
        raise ValueError(f"{file} cannot be read as an image: {error}") from error
    if deep:
        raise ValueError(f"Expected 8 bits per channel, but {file} has pillow's mode {image.mode!r}. Convert it.")
    raise ValueError(f"Expected one image per file, but {file} has {frames} frames. Save each as a file of its own.")


def _opaque(image: Image) -> Image:
    """Return an image without transparency and palette."""
    from PIL import Image

    gray = image.mode in ("1", "L", "LA", "La")
    if "transparency" in image.info or {"A", "a"} & set(image.getbands()):
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert("L" if gray else "RGB")
