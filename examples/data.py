# SPDX-License-Identifier: Apache-2.0
"""The examples' images, float32 [n, c, h, w] in [-1, 1]: digits, planted regions, any image folder, MedMNIST.

The digits and the planted images need no file; the others say which file is missing and where it comes from.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import LightningDataModule
from planted import planted_images
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

FOLDER_ORIGIN = (
    "Any folder of jpg, png, webp or bmp files will do. For CelebA take img_align_celeba.zip (Align&Cropped Images) "
    "from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html and unzip it."
)
MEDMNIST_ORIGIN = (
    "Take for example chestmnist.npz (28 px) or chestmnist_64.npz from https://zenodo.org/records/10519652 (MedMNIST)."
)
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}
FORMATS = ("JPEG", "PNG", "WEBP", "BMP")  # others, whatever their names say, might start another program


class Images(Dataset[Any]):
    """Images [n, c, h, w] that lie in memory, one [c, h, w] per item, or with labels [n] a pair of image and label."""

    def __init__(self, images: Tensor, labels: Tensor | None = None) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.images[index] if self.labels is None else (self.images[index], self.labels[index])


class FolderImages(Dataset[Tensor]):
    """Image files, each read when it is asked for: the central square, resized to `size`, as RGB [3, size, size]."""

    def __init__(self, files: Sequence[Path], size: int) -> None:
        self.files = list(files)
        self.size = size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        from PIL import Image, ImageOps

        with Image.open(self.files[index], formats=FORMATS) as image:
            if image.mode[0] in "IF":
                raise ValueError(
                    f"Expected images of 8 bits per channel, but {self.files[index]} has pillow's mode {image.mode!r}. "
                    "Convert the file or leave it out."
                )
            square = ImageOps.fit(image.convert("RGB"), (self.size, self.size), Image.Resampling.BILINEAR)
        return to_unit_range(np.asarray(square)).permute(2, 0, 1)


def to_unit_range(values: np.ndarray) -> Tensor:
    """Return 0..255 as float32 in [-1, 1], the same shape."""
    return torch.from_numpy(values.astype(np.float32)) / 127.5 - 1


def digits(with_labels: bool = False) -> tuple[Images, Images]:
    """Return scikit-learn's digits [n, 1, 8, 8], 1297 to train on and 500 held out: the same split every time."""
    from sklearn.datasets import load_digits

    known = load_digits()
    images = torch.from_numpy(known.images).float()[:, None] / 8 - 1
    labels = torch.from_numpy(known.target) if with_labels else None
    # Any seed would do; with this one the five clusters of the demo are of similar size, a better picture.
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(4))
    train, held_out = (
        Images(images[chosen], None if labels is None else labels[chosen]) for chosen in (order[:-500], order[-500:])
    )
    return train, held_out


def folder(path: str | Path | None, size: int = 64) -> tuple[FolderImages, FolderImages]:
    """Split the image files under `path` 90/10, by a fixed shuffle of their sorted names.

    Raises:
        FileNotFoundError: if there is no such folder, or fewer than 10 images in it.
    """
    if path is None or not Path(path).is_dir():
        raise FileNotFoundError(f"Expected `path` to be a folder of images, but got {path}. {FOLDER_ORIGIN}")
    files = sorted(file for file in Path(path).rglob("*") if file.suffix.lower() in SUFFIXES)
    if len(files) < 10:
        raise FileNotFoundError(
            f"Only {len(files)} image files under {str(path)!r}: 10 or more are needed. {FOLDER_ORIGIN}"
        )
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0)).tolist()
    held_out = len(files) // 10
    return (
        FolderImages([files[i] for i in order[held_out:]], size),
        FolderImages([files[i] for i in order[:held_out]], size),
    )


def medmnist(path: str | Path | None, held_out: str = "val") -> tuple[Images, Images]:
    """Return the training images of a MedMNIST file of 2-D images, gray or RGB, and those of another split.

    Args:
        path: the .npz file.
        held_out: "val" or "test".

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds something else.
    """
    if path is None or not Path(path).is_file():
        raise FileNotFoundError(f"Expected `path` to be a MedMNIST file, but got {path}. {MEDMNIST_ORIGIN}")
    with np.load(path, allow_pickle=False) as arrays:
        splits = [arrays[key] for key in ("train_images", f"{held_out}_images") if key in arrays]
    if len(splits) < 2 or any(x.dtype != np.uint8 or (x.ndim != 3 and x.shape[3:] != (3,)) for x in splits):
        raise ValueError(
            f"Expected uint8 `train_images` and `{held_out}_images` of shape [n, h, w] or [n, h, w, 3] in "
            f"{str(path)!r}, but got {[(str(x.dtype), x.shape) for x in splits]}. {MEDMNIST_ORIGIN}"
        )
    channels_last = [x[..., None] if x.ndim == 3 else x for x in splits]
    train, other = (to_unit_range(x).permute(0, 3, 1, 2).contiguous() for x in channels_last)
    return Images(train), Images(other)


class ImageData(LightningDataModule):
    """Loaders of training and validation images; every batch is one tensor [n, c, h, w] in [-1, 1], or with its labels.

    Args:
        name: "digits", "planted", "folder" or "medmnist".
        path: the folder or the .npz file; the other two need none.
        batch_size: images per training step.
        image_size: side to which a folder's images are resized.
        with_labels: for digits: whether batches are pairs of images and classes int64 [n].
        held_out: for medmnist: the split that `val_dataloader` gives, "val" or "test".

    Attributes:
        image_shape: (c, h, w) of every image.

    Raises:
        FileNotFoundError: if a file is missing, saying which one and where to get it.
        ValueError: if there are no such images, they need no `path`, have no labels or no such split.
    """

    def __init__(
        self,
        name: str,
        path: str | Path | None = None,
        batch_size: int = 128,
        image_size: int = 64,
        with_labels: bool = False,
        held_out: str = "val",
    ) -> None:
        super().__init__()
        path = None if path is None else str(path)  # checkpoints hold plain Python only
        self.save_hyperparameters()
        self.train_images: Images | FolderImages
        self.val_images: Images | FolderImages
        if name in ("digits", "planted") and path is not None:
            raise ValueError(f"{name!r} needs no file, but got `path` {str(path)!r}. Leave it out.")
        if with_labels and name != "digits":
            raise ValueError(f"Expected `with_labels` with digits only, but got it with {name!r}. Leave it out.")
        if held_out not in (("val", "test") if name == "medmnist" else ("val",)):
            raise ValueError(f'Expected `held_out` as "val", or "test" with medmnist, but got {held_out!r}.')
        if name == "digits":
            self.train_images, self.val_images = digits(with_labels)
        elif name == "planted":
            self.train_images, self.val_images = (Images(planted_images(n, seed=n)) for n in (4000, 1000))
        elif name == "folder":
            self.train_images, self.val_images = folder(path, image_size)
        elif name == "medmnist":
            self.train_images, self.val_images = medmnist(path, held_out)
        else:
            raise ValueError(f"Expected `name` to be digits, planted, folder or medmnist, but got {name!r}.")
        self.batch_size = batch_size
        first = self.train_images[0]
        self.image_shape = tuple((first[0] if with_labels else first).shape)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return shuffled batches, all full unless there are fewer images than one batch."""
        full = len(self.train_images) >= self.batch_size
        return DataLoader(self.train_images, self.batch_size, shuffle=True, drop_last=full, **_workers())

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the held-out images in order."""
        return DataLoader(self.val_images, self.batch_size, **_workers())


def _workers() -> dict[str, Any]:
    # Up to two cores are better spent on training itself.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(4, cores - 1) if cores > 2 else 0
    return {"num_workers": workers, "persistent_workers": workers > 0}
