# SPDX-License-Identifier: Apache-2.0
"""Readers of sets of images, and of other outputs of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from genmonitor._io import Progress, printable, terminal_progress
from genmonitor._validation import check_features, check_images
from genmonitor.cli.arguments import IMAGES
from genmonitor.cli.inputs.files import read_array, split_key
from genmonitor.cli.inputs.pictures import open_pictures
from genmonitor.images.image_set import ImageSet

OUTPUTS = "a folder of image files; or a file .npy or .npz of images, or of embeddings [n, d]"
PROMPT_KEYS = ("prompt", "question", "caption", "label", "class", "text")
"""Names of the prompt in a line of JSON, or of its column in a CSV file."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of a model, in the order in which they were read.

    Attributes:
        where: Folder or file of the outputs, as given.
        names: Name of each output: its file in the folder, else its row, counted from 0.
        images: Images, read when needed; None if the outputs are not images.
        features: Features [n, d]: the embeddings, or the encoded images; None before they are encoded.
        notes: Notes for the user on the reading.
    """

    where: str
    names: list[str]
    images: ImageSet | None = None
    features: Tensor | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def kind(self) -> str:
        """Word for the outputs in sentences."""
        return "images" if self.images is not None else "embeddings"

    @property
    def shape(self) -> list[int] | None:
        """Shape of one output."""
        if self.images is not None:
            return list(self.images.shape)
        return None if self.features is None else list(self.features.shape[1:])

    def label(self, row: int, prompts: Sequence[object] | None = None) -> str:
        """Return a label for one output in a table: its name and its prompt."""
        name = cut(self.names[row], 60)
        return name if prompts is None else f"{name} ({cut(prompts[row], 40)})"


def cut(text: object, length: int) -> str:
    """Return a text as one line of at most `length` characters, without control characters."""
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"


def read_outputs(
    where: str, size: int | None, progress: Progress, expected: str = OUTPUTS, skip_bad: bool = False
) -> Outputs:
    """Read the outputs of a model.

    Args:
        where: Folder of image files; or file .npy or .npz of images, or of embeddings [n, d].
        size: Side to which images of a folder are resized, after cropping to their central square.
        progress: Progress bar over the files of a folder.
        expected: Description of the expected input, for the error if there is nothing.
        skip_bad: True to leave out pictures that cannot be read, and name them in a note.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If it cannot be read, holds something else, or has values that are not finite.
    """
    path, key = _locate(where, size, expected)
    if path.is_dir():
        names, images, notes = open_pictures(path, size, progress, skip_bad)
        return Outputs(where, names, images=images, notes=notes)
    values = read_array(path, key)
    names = [f"row {row}" for row in range(len(values) if values.ndim else 0)]
    if values.ndim == 2:
        return Outputs(where, names, features=check_features(f"embeddings of {path}", values))
    return Outputs(where, names, images=_as_images(path, values))


def read_images(
    where: str, size: int | None = None, progress: Progress = terminal_progress, skip_bad: bool = False
) -> Tensor:
    """Read a set of images.

    Args:
        where: Folder of image files, searched with its subfolders; or file .npy or .npz of [N, C, H, W], [N, H, W, C]
            or [N, H, W]. Of several arrays in a file the one called "images", or the one named after a colon, as in
            "data.npz:train_images".
        size: Side to which images of a folder are resized, after cropping to their central square.
        progress: Progress bar over the files of a folder.
        skip_bad: True to leave out pictures that cannot be read.

    Returns:
        Images [N, C, H, W], float32; 8 bits per channel are scaled to [0, 1]. Pictures are rotated by their EXIF
        orientation, and transparent parts are over white.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If it holds no images, images of different sizes without `size`, or a file that cannot be read or
            has several frames or more than 8 bits per channel.
    """
    images = images_of(read_outputs(where, size, progress, IMAGES, skip_bad))
    return images.read(range(len(images)))


def images_of(outputs: Outputs) -> ImageSet:
    """Return the images of outputs; refuse other outputs."""
    if outputs.images is None:
        raise ValueError(f"Expected {IMAGES}, but {outputs.where} holds {outputs.kind}.")
    return outputs.images


def _locate(where: str, size: int | None, expected: str) -> tuple[Path, str | None]:
    """Return an existing path, and the name of the array in it if given."""
    path, key = split_key(where)
    if not path.exists():
        raise FileNotFoundError(f"Expected {expected}, but there is no {where}.")
    if key is not None and path.is_dir():
        raise ValueError(f"Expected a folder without a name behind a colon, but got {where}. Give {path}.")
    if size is not None and not path.is_dir():
        raise ValueError(f"Only pictures are resized, but {path} is a file of numbers. Leave out --size.")
    return path, key


def _as_images(path: Path, values: Tensor) -> ImageSet:
    """Return the array of a file as images [N, C, H, W]."""
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim == 4 and values.shape[3] in (1, 3, 4) and min(values.shape[1:3]) > 4:
        values = values.permute(0, 3, 1, 2)
    check_images(f"images of {path}", values[:1])
    return ImageSet(values, name=str(path))
