# SPDX-License-Identifier: Apache-2.0
"""The images nearest to an image in a space: which they are, how alike they are, and a picture of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from genmonitor.plotting.style import INK, add_axes, new_figure, to_tiles

GALLERY, NEIGHBORS = 200, 5
"""Images to find neighbors among, and how many. Among thousands some are alike in place and size to the pixel."""


def nearest(embedded: Tensor) -> Tensor:
    """Return the images nearest to each of the gallery by the cosine, itself left out: [g, k], from [n, size]."""
    directions = normalize(embedded[:GALLERY])
    return (directions @ directions.T).fill_diagonal_(-2).topk(NEIGHBORS).indices


def share_alike(neighbors: Tensor, labels: Sequence[str]) -> float:
    """Return which part of all neighbors [g, k] has the label of the image that they are near to."""
    values = sorted(set(labels))
    numbers = torch.tensor([values.index(label) for label in labels[: len(neighbors)]])
    return float((numbers[neighbors] == numbers[:, None]).float().mean())


def draw_nearest(
    path: Path, title: str, images: Tensor, queries: Mapping[int, str], spaces: Mapping[str, Tensor]
) -> None:
    """Draw images and beside each those nearest to it, space by space.

    Args:
        path: of the PNG.
        title: of the figure.
        images: [n, 3, H, W] in [-1, 1].
        queries: which images, and what to write below each.
        spaces: their neighbors [g, k] by what to write above them.
    """
    tile, gap, left, top, line = 46, 4, 24, 100, 72
    block = NEIGHBORS * (tile + gap) + 22
    width, height = left + tile + 26 + block * len(spaces), top + line * len(queries) + 6
    figure = new_figure(width, height, title, "The first of each row, and the images nearest to it")
    for column, head in enumerate(spaces):
        x = left + tile + 26 + column * block
        figure.text(x / width, 1 - (top - 8) / height, head, fontsize=10.5, color=INK)
    for row, (query, text) in enumerate(queries.items()):
        places = {left: query}
        for column, neighbors in enumerate(spaces.values()):
            start = left + tile + 26 + column * block
            places |= {start + i * (tile + gap): int(neighbors[query, i]) for i in range(NEIGHBORS)}
        bottom = height - top - row * line - tile
        for x, tile_image in zip(places, to_tiles(images[list(places.values())].numpy(), (-1, 1)), strict=True):
            ax = add_axes(figure, x, bottom, tile, tile)
            ax.imshow(tile_image, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
        figure.text(left / width, (bottom - 4) / height, text, fontsize=9, va="top", color=INK)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
