# SPDX-License-Identifier: Apache-2.0
"""Reading sets of images from folders and files; nothing is ever unpickled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from genmonitor._validation import check_images
from genmonitor.cli.arguments import IMAGES
from genmonitor.cli.reading.arrays import read_array, split_key
from genmonitor.evaluation.progress import Progress, terminal_progress

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}


def read_images(
    where: str, size: int | None = None, limit: int | None = None, progress: Progress = terminal_progress
) -> Tensor:
    """Read a set of images.

    Args:
        where: a folder of image files, searched through; or a file .npy, .npz, .pt or .safetensors of [N, C, H, W],
            [N, H, W, C] or [N, H, W]. Of several arrays in a file the one called "images", or that named behind a
            colon, as in "data.npz:train_images".
        size: images of a folder are cut to their central square and resized to this side.
        limit: at most so many, the first in the order of `image_files`.
        progress: shows how many files of a folder have been read.

    Returns:
        Images [N, C, H, W]; 8 bits per channel become float32 in [0, 1]. Pictures are as a viewer shows them: upright,
        by the orientation that their camera noted, and what is transparent over white.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it holds no images, images of different sizes without `size`, or a file that cannot be read, that
            has several frames, or more than 8 bits per channel.
    """
    path, key = split_key(where)
    if path.is_dir():
        return _folder(path, size, limit, progress)
    if not path.exists():
        raise FileNotFoundError(f"Expected {IMAGES}, but there is no {where}.")
    if size is not None:
        raise ValueError(
            f"Images are only resized where they come from a folder, but {path} is a file. Leave out --size."
        )
    values = read_array(path, key)
    return as_images(path, values[:limit] if values.ndim else values)


def as_images(path: Path, values: Tensor) -> Tensor:
    """Return what a file holds as images [N, C, H, W]; raise ValueError if it holds none."""
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
    files = sorted((file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES), key=_natural)
    if not files:
        raise FileNotFoundError(f"Expected image files ({', '.join(sorted(SUFFIXES))}) under {path}, but found none.")
    return files


def _natural(file: Path) -> tuple[list[list[str | int]], Path]:
    """Return what paths are sorted by: runs of digits as the numbers that they are."""
    parts = [re.split(r"([0-9]+)", part) for part in file.parts]
    return [[int(x) if place % 2 else x for place, x in enumerate(part)] for part in parts], file


def _folder(path: Path, size: int | None, limit: int | None, progress: Progress) -> Tensor:
    from PIL import Image, ImageOps

    arrays = []
    for file in progress(image_files(path)[:limit], f"reading {path.name}"):
        picture = _picture(file)
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


def _picture(file: Path) -> Image:
    """Return a picture as a viewer shows it, gray (mode L) or in color (RGB)."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as image:
            frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)  # an MPO's others are previews
            deep = image.mode[0] in "IF"
            if frames == 1 and not deep:
                image.load()
                return _flat(ImageOps.exif_transpose(image))
    except Exception as error:  # pillow's decoders raise anything, and often without the file's name
        raise ValueError(f"{file} cannot be read as an image: {error}") from error
    if deep:
        raise ValueError(f"Expected 8 bits per channel, but {file} has pillow's mode {image.mode!r}. Convert it.")
    raise ValueError(f"Expected one picture in a file, but {file} has {frames} frames. Save each as a file of its own.")


def _flat(image: Image) -> Image:
    """Return an image without transparency and palette."""
    from PIL import Image

    gray = image.mode in ("1", "L", "LA", "La")
    if "transparency" in image.info or {"A", "a"} & set(image.getbands()):
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert("L" if gray else "RGB")
