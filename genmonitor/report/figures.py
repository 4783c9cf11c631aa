# SPDX-License-Identifier: Apache-2.0
"""Image files: figures as PNG, strips of images for the page as WebP."""

from __future__ import annotations

import io
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from genmonitor._io import signals_deferred
from genmonitor.evaluation.results import ShownImages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genmonitor.plotting.style import Drawing

LOSSLESS_SIDE = 32
"""Images up to this side are kept bit for bit: between so small ones the blocks of a lossy file would show."""
QUALITY = 80
"""Of larger pictures, on Pillow's scale to 100."""


@dataclass(frozen=True, eq=False)
class RenderedFigure:
    """The PNG file that a matplotlib figure gives."""

    png: bytes

    @classmethod
    def of(cls, given: Figure | Drawing) -> RenderedFigure:
        """Render a figure, or what a function draws, at its own resolution."""
        buffer = io.BytesIO()
        # matplotlib's C++ code makes a ValueError of a KeyboardInterrupt, or drops it
        with signals_deferred(signal.SIGINT):
            figure = given() if callable(given) else given
            figure.savefig(buffer, format="png", dpi=figure.dpi)
        return cls(buffer.getvalue())


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
    """Return what a reader of the file needs: the height of an image, captions and distances."""
    return {
        "height": shown.tiles.shape[1],
        "nearest": shown.nearest is not None,
        "captions": list(shown.captions),
        "distances": [round(distance, 3) for distance in shown.distances],
    }
