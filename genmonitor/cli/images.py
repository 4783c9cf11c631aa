# SPDX-License-Identifier: Apache-2.0
"""Reading sets of images from folders and files; nothing is ever unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genmonitor._validation import check_images

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
NAMES = ("images", "image", "pixel_values", "arr_0")


def read_images(where: str, size: int | None = None, limit: int | None = None) -> Tensor:
    """Read a set of images.

    Args:
        where: a folder of image files, searched through; or a file .npy, .npz or .pt of [N, C, H, W], [N, H, W, C] or
            [N, H, W]. Of several arrays in a file the one called "images", or that named behind a colon, as in
            "data.npz:train_images".
        size: images of a folder are cut to their central square and resized to this side.
        limit: at most so many, the first in the order of the names.

    Returns:
        Images [N, C, H, W]; 8 bits per channel become float32 in [0, 1].

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it holds no images, or images of different sizes without `size`.
    """
    path, key = Path(where), None
    if not path.exists() and ":" in where:
        name, _, key = where.rpartition(":")
        path = Path(name)
    if path.is_dir():
        return _folder(path, size, limit)
    if not path.exists():
        raise FileNotFoundError(f"Expected a folder of images or a file .npy, .npz or .pt, but there is no {where}.")
    if size is not None:
        raise ValueError(
            f"Images are only resized where they come from a folder, but {path} is a file. Leave out --size."
        )
    values = _array(path, key)
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim == 4 and values.shape[3] in (1, 3, 4) and min(values.shape[1:3]) > 4:
        values = values.permute(0, 3, 1, 2)
    return check_images(f"images of {path}", values[:limit])


def _array(path: Path, key: str | None) -> Tensor:
    try:
        if path.suffix == ".pt":
            content = torch.load(path, map_location="cpu", weights_only=True)
        else:
            content = np.load(path, allow_pickle=False)
        arrays = {} if isinstance(content, (Tensor, np.ndarray)) else dict(content)  # what is in a .npz is read here
    except Exception as error:
        raise ValueError(f"{path} is no .npy, .npz or .pt file of plain numbers: {error}") from error
    if isinstance(content, (Tensor, np.ndarray)):
        return torch.as_tensor(content)
    chosen: Any = arrays.get(key) if key else next((arrays[name] for name in NAMES if name in arrays), None)
    if chosen is None and key is None and len(arrays) == 1:
        (chosen,) = arrays.values()
    if not isinstance(chosen, (Tensor, np.ndarray)):
        example = f"{path}:{next(iter(arrays), 'NAME')}"
        raise ValueError(f"Which of {', '.join(map(str, arrays))} in {path} holds the images? Say it as in {example}.")
    return torch.as_tensor(chosen)


def _folder(path: Path, size: int | None, limit: int | None) -> Tensor:
    from PIL import Image, ImageOps
    from tqdm import tqdm

    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)[:limit]
    if not files:
        raise FileNotFoundError(f"Expected image files ({', '.join(sorted(SUFFIXES))}) under {path}, but found none.")
    arrays = []
    for file in tqdm(files, desc=f"reading {path.name}", leave=False, disable=None):
        with Image.open(file) as image:
            if image.mode[0] in "IF":
                raise ValueError(
                    f"Expected 8 bits per channel, but {file} has pillow's mode {image.mode!r}. Convert it."
                )
            gray = image.mode in ("1", "L", "LA")
            picture = image.convert("L" if gray else "RGB")
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
