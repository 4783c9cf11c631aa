# SPDX-License-Identifier: Apache-2.0
"""Readers of sets of images, and of any outputs of a model: images, embeddings or texts."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from genmonitor._io import Progress, terminal_progress
from genmonitor._validation import check_features, check_images
from genmonitor.cli.arguments import IMAGES
from genmonitor.cli.inputs.files import all_or_none, pick, read_array, read_json_lines, split_key

if TYPE_CHECKING:
    from PIL.Image import Image

OUTPUTS = (
    "a folder of image files, or of tar files of these, or one such file .tar; a file .npy, .npz, .pt or .safetensors "
    'of images, or of embeddings [n, d]; or lines of JSON {"prompt": ..., "output": ...} with texts'
)
TEXT_KEYS = ("output", "answer", "response", "completion", "text")
"""Names of the output in a line of JSON."""
PROMPT_KEYS = ("prompt", "question", "caption", "label", "class", "text")
"""Names of the prompt in a line of JSON, or of its column in a CSV file."""
GRAY, ORIENTATION, SIDEWAYS = ("1", "L", "LA", "La"), 0x0112, 5
"""Pillow's modes, and of what a camera notes the tag and the first value that swaps height and width."""
BATCH, MANY, MANY_VALUES, MOST_WORKERS, TAR = 100, 1000, 2**24, 8, ".tar"
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}


@dataclass(frozen=True)
class Picture:
    """An image file, by itself or in a tar file.

    Attributes:
        name: its path in the folder or in the tar file.
        path: of the file, or of the tar file.
        start: where it begins in that.
        length: of its bytes; -1 for all to the end.
    """

    name: str
    path: Path
    start: int = 0
    length: int = -1

    def head(self) -> tuple[int, int, bool]:
        """Return height, width, and whether it is gray."""
        with self._opened() as image:
            turned = image.getexif().get(ORIENTATION, 1) >= SIDEWAYS
            return (*(image.size if turned else image.size[::-1]), image.mode in GRAY)

    def pixels(self, shape: Sequence[int]) -> Tensor:
        """Return it as a viewer shows it, uint8 of this shape [C, H, W], cropped to it where that is needed."""
        from PIL import Image, ImageOps

        channels, height, width = shape
        with self._opened() as image:
            image.load()
            picture = _opaque(ImageOps.exif_transpose(image))
            if picture.size != (width, height):
                picture = ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR)
            pixels = torch.from_numpy(np.array(picture.convert("L" if channels == 1 else "RGB")))
        return pixels[None] if channels == 1 else pixels.permute(2, 0, 1)

    @contextmanager
    def _opened(self) -> Iterator[Image]:
        """Open it; whatever fails in the block is an error that names it."""
        from PIL import Image

        where = self.path if self.length < 0 else f"{self.path}/{self.name}"
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                content = file if self.length < 0 else io.BytesIO(file.read(self.length))
                with Image.open(content) as image:
                    frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)  # others are previews
                    if frames == 1 and image.mode[0] not in "IF":
                        yield image
                        return
        except Exception as error:  # pillow's decoders raise anything, and often without the file's name
            raise ValueError(f"{where} cannot be read as an image: {error}") from error
        if frames == 1:
            raise ValueError(f"Expected 8 bits per channel, but {where} has pillow's mode {image.mode!r}. Convert it.")
        raise ValueError(
            f"Expected one image per file, but {where} has {frames} frames. Save each as a file of its own."
        )


@dataclass(frozen=True, eq=False)
class Images:
    """Images [n, C, H, W] that are read when they are asked for: `images[rows]`, float32 or float64.

    Attributes:
        name: in errors.
        source: numbers, which may be mapped from a file, or pictures, which are decoded.
        shape: of all.
    """

    name: str
    source: Tensor | Sequence[Picture]
    shape: torch.Size

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Tensor | Sequence[int]) -> Tensor:
        """Read some of them, [..., C, H, W] for rows [...]."""
        places = torch.arange(len(self))[rows]
        if isinstance(self.source, Tensor):
            return check_images(self.name, self.source[places.flatten()]).reshape(*places.shape, *self.shape[1:])
        found = torch.empty(*places.shape, *self.shape[1:])
        parts = found.view(-1, *self.shape[1:]).split(BATCH)
        for part, batch in zip(parts, self.batches(places.flatten().tolist(), BATCH), strict=False):
            part.copy_(batch)
        return found

    def batches(self, rows: Sequence[int], size: int) -> Iterator[Tensor]:
        """Read some of them, in batches; pictures are decoded by several processes where they are many."""
        groups = [rows[start : start + size] for start in range(0, len(rows), size)]
        if isinstance(self.source, Tensor):
            yield from (check_images(self.name, self.source[list(group)]) for group in groups)
            return
        workers = min(MOST_WORKERS, os.cpu_count() or 1) if len(rows) >= MANY else 0
        decoded = _Decoded(self.source, groups, self.shape[1:])
        for batch in DataLoader(decoded, batch_size=None, num_workers=workers):
            if isinstance(batch, str):
                raise ValueError(batch)
            yield check_images(self.name, batch)

    def some(self) -> Tensor:
        """Return images that tell the range of values: numbers evenly spread over all; of pictures black and white."""
        if not isinstance(self.source, Tensor):
            return torch.tensor([0.0, 1.0])
        return self[:: max(1, self.shape.numel() // MANY_VALUES)]


@dataclass(frozen=True)
class _Decoded(Dataset[Tensor | str]):
    """Batches of pictures; for one that cannot be read a text says why, since DataLoader rewords errors."""

    pictures: Sequence[Picture]
    groups: Sequence[Sequence[int]]
    shape: Sequence[int]

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, number: int) -> Tensor | str:
        try:
            return torch.stack([self.pictures[row].pixels(self.shape) for row in self.groups[number]])
        except ValueError as error:
            return str(error)


@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs of a model, in the order in which they were read.

    Attributes:
        where: their folder or file, as given.
        names: of each output: its file in the folder, else its row, counted from 0.
        images: [n, C, H, W], read when they are asked for; None if the outputs are no images.
        texts: one per output; None if the outputs are no texts.
        features: [n, d]: the embeddings, or what the encoder made of images or texts; None before.
        prompts: one per output, where the same file holds them.
    """

    where: str
    names: list[str]
    images: Images | None = None
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


def read_outputs(where: str, size: int | None, progress: Progress, expected: str = OUTPUTS) -> Outputs:
    """Read the outputs of a model.

    Args:
        where: a folder of image files; a file .npy, .npz, .pt or .safetensors of images, or of embeddings [n, d]; or
            lines of JSON (.jsonl), each with an output that is a text.
        size: images of a folder are cropped to their central square and resized to this side.
        progress: shows how many files of a folder have been read.
        expected: what to say that it should be where there is nothing.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it cannot be read, holds something else, or values that are not finite.
    """
    path, key = _locate(where, size, expected)
    if _holds_pictures(path):
        pictures = find_pictures(path)
        return Outputs(where, [x.name for x in pictures], images=_of_pictures(path, pictures, size, progress))
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
    return open_images(where, size, progress)[:]


def open_images(where: str, size: int | None, progress: Progress) -> Images:
    """Return the images that `read_images` reads, each of which is read when it is asked for."""
    path, key = _locate(where, size, IMAGES)
    if _holds_pictures(path):
        return _of_pictures(path, find_pictures(path), size, progress)
    return _as_images(path, read_array(path, key))


def _locate(where: str, size: int | None, expected: str) -> tuple[Path, str | None]:
    """Return the path, which exists, and the name of the array in it, if one was given."""
    path, key = split_key(where)
    if not path.exists():
        raise FileNotFoundError(f"Expected {expected}, but there is no {where}.")
    if size is not None and not _holds_pictures(path):
        raise ValueError(f"Only pictures are resized, but {path} is a file of numbers or texts. Leave out --size.")
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


def _as_images(path: Path, values: Tensor) -> Images:
    """Return the array of a file as images [N, C, H, W]."""
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim == 4 and values.shape[3] in (1, 3, 4) and min(values.shape[1:3]) > 4:
        values = values.permute(0, 3, 1, 2)
    check_images(f"images of {path}", values[:1])
    return Images(f"images of {path}", values, values.shape)


def _holds_pictures(path: Path) -> bool:
    return path.is_dir() or path.suffix == TAR


def find_pictures(path: Path) -> list[Picture]:
    """List the image files under a folder, and in its tar files, or in a tar file, in the order in which they are read.

    That is by their paths, 2.png before 10.png; in a tar file as they lie there.

    Raises:
        FileNotFoundError: if there are none.
        ValueError: if a tar file is compressed or not whole.
    """
    files = sorted(path.rglob("*"), key=_natural_order) if path.is_dir() else [path]
    found = []
    for file in files:
        name = file.relative_to(path).as_posix() if path.is_dir() else ""
        if file.suffix == TAR and file.is_file():
            found += _members(file, name)
        elif file.suffix.lower() in IMAGE_SUFFIXES:
            found.append(Picture(name, file))
    if not found:
        kinds = ", ".join(sorted(IMAGE_SUFFIXES))
        raise FileNotFoundError(f"Expected image files ({kinds}) under {path}, but found none.")
    return found


def _members(path: Path, name: str) -> list[Picture]:
    """List the image files in a tar file, which is called `name` in the folder."""
    try:
        with tarfile.open(path, "r:") as tar, path.open("rb") as file:
            members = [x for x in tar if Path(x.name).suffix.lower() in IMAGE_SUFFIXES]
            file.seek(tar.offset)  # tarfile takes a broken header for the end
            if file.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
                raise tarfile.ReadError(f"no end of the archive at byte {tar.offset}")
    except tarfile.TarError as error:
        raise ValueError(
            f"Expected a whole tar file without compression, but {path} is not: {error}. Write it again."
        ) from error
    if link := next((x.name for x in members if not x.isfile()), None):
        raise ValueError(f"Expected image files in {path}, but {link} is none, such as a link. Pack what it leads to.")
    return [Picture(str(PurePosixPath(name, x.name)), path, x.offset_data, x.size) for x in members]


def _natural_order(file: Path) -> tuple[list[list[str | int]], Path]:
    """Return a key that sorts paths with runs of digits as numbers."""
    parts = [re.split(r"([0-9]+)", part) for part in file.parts]
    return [[int(x) if place % 2 else x for place, x in enumerate(part)] for part in parts], file


def _of_pictures(path: Path, pictures: Sequence[Picture], size: int | None, progress: Progress) -> Images:
    """Return pictures as images; of all only the first bytes are read now, to tell the size."""
    heads = [picture.head() for picture in progress(pictures, f"reading {path.name}")]
    sizes = sorted({(h, w) for h, w, _ in heads})
    if size is None and len(sizes) > 1:
        some = ", ".join(f"{h}×{w}" for h, w in sizes[:3])
        raise ValueError(f"Expected images of one size, but {path} holds {some}. Give --size to resize them.")
    channels = 1 if all(gray for *_, gray in heads) else 3  # gray ones among colored ones are made so
    shape = torch.Size((len(pictures), channels, *(sizes[0] if size is None else (size, size))))
    return Images(f"images of {path}", pictures, shape)


def _opaque(image: Image) -> Image:
    """Return an image without transparency and palette."""
    from PIL import Image

    gray = image.mode in GRAY
    if "transparency" in image.info or {"A", "a"} & set(image.getbands()):
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert("L" if gray else "RGB")
