# SPDX-License-Identifier: Apache-2.0
"""Images that the page shows one by one, as one small file: below each other, with the nearest real ones beside."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from genmonitor.evaluation.results import ShownImages

LOSSLESS_SIDE = 32
"""Images up to this side are kept bit for bit: between so small ones the blocks of a lossy file would show."""
QUALITY = 80
"""Of larger ones, on Pillow's scale to 100."""


def encode_strip(shown: ShownImages) -> bytes:
    """Return images below each other as a WebP file, at the right of each the real image nearest to it."""
    sides = [shown.tiles] if shown.nearest is None else [shown.tiles, shown.nearest]
    tiles = np.concatenate(sides, axis=2)
    pixels = np.round(255 * tiles.reshape(-1, *tiles.shape[2:])).astype(np.uint8)
    small = max(shown.tiles.shape[1:3]) <= LOSSLESS_SIDE
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", lossless=small, quality=100 if small else QUALITY)
    return file.getvalue()


def describe_strip(shown: ShownImages) -> dict[str, Any]:
    """Return what a reader of the file has to know: the height of an image, its captions and distances."""
    return {
        "height": shown.tiles.shape[1],
        "nearest": shown.nearest is not None,
        "captions": list(shown.captions),
        "distances": [round(distance, 3) for distance in shown.distances],
    }
