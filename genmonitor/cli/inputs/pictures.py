# SPDX-License-Identifier: Apache-2.0
"""Pictures: files in folders, decoded when needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from genmonitor._io import Progress
from genmonitor.images.image_set import ImageSet
from genmonitor.linalg.chunking import processors

if TYPE_CHECKING:
    from PIL.Image import Image

GRAY = ("1", "L", "LA", "La")
"""Pillow's modes without colors."""
MOST_WORKERS = 8
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""Formats of pictures, independent of their names: Pillow would pass PostScript to another program."""
NAMED = 5
"""Number of unreadable pictures that a message names."""


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
    more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return "; ".join(text.rstrip(".") for text in bad[:NAMED]) + more


def _opaque(image: Image) -> Image:
    """Return an image without transparency and palette."""
    from PIL import Image

    gray = image.mode in GRAY
    if "transparency" in image.info or {"A", "a"} & set(image.getbands()):
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert("L" if gray else "RGB")
