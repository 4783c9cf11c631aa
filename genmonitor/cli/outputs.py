# SPDX-License-Identifier: Apache-2.0
"""Readers of outputs of a model: folders of pictures, arrays of images or of embeddings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from genmonitor._io import Progress, printable, terminal_progress
from genmonitor._validation import check_features, check_images
from genmonitor.cli.arguments import IMAGES
from genmonitor.images.image_set import ImageSet
from genmonitor.linalg.chunking import processors

if TYPE_CHECKING:
    from PIL.Image import Image

ARRAY_SUFFIXES = (".npy", ".npz")
OUTPUTS = "a folder of image files; or a file .npy or .npz of images, or of embeddings [n, d]"


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


# arrays


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


# pictures

GRAY = ("1", "L", "LA", "La")
"""Pillow's modes without colors."""
MOST_WORKERS = 8
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""Formats of pictures, independent of their names: Pillow would pass PostScript to another program."""


@dataclass(frozen=True)
class Picture:
    """An image file.

    Attributes:
        name: Path in the folder of the set.
        path: Path of the file.
    """

    name: str
    path: Path

    def head(self) -> tuple[int, int, bool]:
        """Return height, width, and True if it is gray; refuse a picture that cannot be read completely."""
        with self._opened() as image:
            turned = image.getexif().get(0x0112, 1) >= 5  # the camera's orientation, height and width swapped
            head = (*(image.size if turned else image.size[::-1]), image.mode in GRAY)
            image.draft(None, (1, 1))  # JPEG alone: decodes it small
            image.load()
            return head

    def pixels(self, shape: Sequence[int]) -> Tensor:
        """Return the picture as a viewer shows it, uint8 of this shape [C, H, W], cropped if needed."""
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
        """Open the picture; errors in the block name it."""
        from PIL import Image

        try:
            with Image.open(self.path, formats=FORMATS) as image:
                frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)  # others are previews
                if frames == 1 and image.mode[0] not in "IF":
                    yield image
                    return
        except Exception as error:  # pillow's decoders raise any exception, often without the file's name
            raise PictureError(f"{self.path} cannot be read as an image: {error}") from error
        if frames == 1:
            mode = f"pillow's mode {image.mode!r}"
            raise PictureError(f"Expected 8 bits per channel, but {self.path} has {mode}. Convert it.")
        raise PictureError(f"Expected one image per file, but {self.path} has {frames} frames. Save each by itself.")


class PictureError(ValueError):
    """A picture that cannot be read, without the traceback that DataLoader adds to errors of its workers.

    Args:
        message: Error, possibly after a traceback.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.rpartition("PictureError: ")[2].rstrip())


@dataclass(frozen=True, eq=False)
class Pictures(Dataset[Tensor]):
    """Pictures as a dataset of uint8 [C, H, W], decoded when needed.

    Attributes:
        pictures: Files.
        shape: Shape of all images.
    """

    pictures: Sequence[Picture]
    shape: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, row: int) -> Tensor:
        return self.pictures[row].pixels(self.shape)


def find_pictures(folder: Path) -> list[Picture]:
    """List the image files in a folder by path, 2.png before 10.png.

    Files whose names begin with a dot, such as ._1.png of macOS, are ignored, and so are folders and pipes with names
    of pictures.

    Raises:
        FileNotFoundError: If there are none.
    """
    named = [file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES and file.name[0] != "."]
    files = [file for file in named if file.is_file() or not file.exists()]  # a link to nowhere is named as broken
    if not files:
        kinds = ", ".join(sorted(IMAGE_SUFFIXES))
        raise FileNotFoundError(f"Expected image files ({kinds}) under {folder}, but found none.")
    return [Picture(file.relative_to(folder).as_posix(), file) for file in sorted(files, key=_natural_order)]


def _natural_order(file: Path) -> tuple[list[list[str | int]], Path]:
    """Return a key that sorts paths with runs of digits as numbers."""
    parts = [re.split(r"([0-9]+)", part) for part in file.parts]
    return [[int(x) if place % 2 else x for place, x in enumerate(part)] for part in parts], file


def open_pictures(
    path: Path, size: int | None, progress: Progress, skip_bad: bool = False
) -> tuple[list[str], ImageSet, tuple[str, ...]]:
    """Return the names of the readable pictures, the pictures as images, and notes.

    Each picture is decoded once here and again when needed.

    Args:
        path: Path of the pictures.
        size: Side to which they are cropped and resized; None if all have one size.
        progress: Progress bar over the pictures.
        skip_bad: True to leave out pictures that cannot be read, and name them in a note.

    Raises:
        ValueError: If some cannot be read, with their number and the first names, or if sizes differ.
    """
    pictures = find_pictures(path)
    good: list[Picture] = []
    heads: list[tuple[int, int, bool]] = []
    bad: list[str] = []
    with ThreadPoolExecutor(min(MOST_WORKERS, processors())) as pool:
        for picture, head in zip(pictures, progress(pool.map(_head, pictures), f"reading {path.name}"), strict=True):
            if isinstance(head, PictureError):
                bad.append(str(head))
            else:
                good.append(picture)
                heads.append(head)
    if bad and not (skip_bad and good):
        raise ValueError(_listed(path, bad, len(pictures)))
    notes = [f"left out {len(bad)} of {len(pictures)} files of {path}: {_first(bad)}"] if bad else []
    sizes = {(h, w): picture.name for picture, (h, w, _) in zip(reversed(good), reversed(heads), strict=True)}
    if size is None and len(sizes) > 1:
        some = ", ".join(f"{h}×{w} ({name})" for (h, w), name in sorted(sizes.items())[:3])
        raise ValueError(f"Expected images of one size, but {path} holds {some}. Give --size to resize them.")
    gray = sum(gray for *_, gray in heads)
    if 0 < gray < len(heads):
        notes.append(f"{gray} of {len(heads)} images of {path} are gray, and read as colored ones like the others")
    shape = (1 if gray == len(heads) else 3, *(next(iter(sizes)) if size is None else (size, size)))
    loader = DataLoader(Pictures(good, shape), num_workers=min(MOST_WORKERS, processors()))
    return [x.name for x in good], ImageSet(loader, name=str(path)), tuple(notes)


def _head(picture: Picture) -> tuple[int, int, bool] | PictureError:
    try:
        return picture.head()
    except PictureError as error:
        return error


def _listed(path: Path, bad: Sequence[str], count: int) -> str:
    """Return the error of pictures that cannot be read, for several with all reasons."""
    advice = " Mend or remove what is wrong, or give --skip-bad to leave it out."
    if len(bad) == 1:
        return f"{bad[0]}{'' if bad[0].endswith('.') else '.'}{advice}"
    return f"Expected images in {path}, but {len(bad)} of {count} files are none: {_first(bad)}.{advice}"


def _first(bad: Sequence[str]) -> str:
    most = 5
    more = f"; and {len(bad) - most} more" if len(bad) > most else ""
    return "; ".join(text.rstrip(".") for text in bad[:most]) + more


def _opaque(image: Image) -> Image:
    """Return an image without transparency and palette."""
    from PIL import Image

    gray = image.mode in GRAY
    if "transparency" in image.info or {"A", "a"} & set(image.getbands()):
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert("L" if gray else "RGB")
