# SPDX-License-Identifier: Apache-2.0
"""Views of samples, region by region, and the distances in them, of a few values at a time: they add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from genmonitor.linalg.chunking import column_blocks, row_blocks
from genmonitor.linalg.whitening import Whitening
from genmonitor.partition import PixelPartition


class SampleView(Protocol):
    """What is compared of samples [N, ...], in regions."""

    def __len__(self) -> int:
        """Return the number of regions."""

    def pieces(self, region: int, *sets: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yield some values of a region at a time, of each set of samples [N, some]."""


class Structure(NamedTuple):
    """Values as they are: pixels of images, or features.

    Attributes:
        columns: of each region, indices into flattened samples.
    """

    columns: list[Tensor]

    @classmethod
    def of(cls, samples: Tensor, partition: PixelPartition | None) -> Structure:
        """See samples [N, ...] in the regions of a partition, or as one."""
        return cls(region_columns(partition, samples) or [torch.arange(samples[0].numel(), device=samples.device)])

    def __len__(self) -> int:
        return len(self.columns)

    def pieces(self, region: int, *sets: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yield some columns of a region at a time."""
        for some in column_blocks(self.columns[region], sum(map(len, sets))):
            yield tuple(x.flatten(1).index_select(1, some) for x in sets)


class Texture(NamedTuple):
    """Whitened images, each region alone, so that no other shows in it.

    Attributes:
        whitening: by real images, or by those of both sides.
        inside: of each region, booleans [H, W].
    """

    whitening: Whitening
    inside: list[Tensor]

    @classmethod
    def of(cls, whitening: Whitening, partition: PixelPartition | None) -> Texture:
        """See images in the regions of a partition, or as one."""
        mean = whitening.mean[0]
        if partition is None:
            return cls(whitening, [torch.ones_like(mean, dtype=torch.bool)])
        labels = partition.pixel_labels().to(mean.device)
        return cls(whitening, [labels == label for label in partition.regions().values()])

    def __len__(self) -> int:
        return len(self.inside)

    def pieces(self, region: int, *sets: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yield a region's pixels in some rows of the images at a time."""
        inside = self.inside[region]
        for rows in self.whitening.strips(inside, sum(map(len, sets))):
            yield tuple(self.whitening(x, inside, rows)[:, :, inside[rows]].flatten(1) for x in sets)


def region_columns(partition: PixelPartition | None, images: Tensor) -> list[Tensor] | None:
    """Return where the pixels of each region lie in a flattened image, in the order of `partition.regions()`."""
    if partition is None:
        return None
    channels = images.shape[1]
    return [partition.columns(label, channels).to(images.device) for label in partition.regions().values()]


def distance_blocks(
    regions: int,
    pieces: Callable[[int], Iterable[tuple[Tensor, Tensor]]],
    shape: tuple[int, int],
    distances: Callable[[Tensor, Tensor], Tensor],
    upper: bool,
) -> Iterator[tuple[int, int, int, Tensor]]:
    """Yield a region, from 1 on and at last 0 for all of them, a first and a last row, and the distances of these rows.

    Args:
        regions: their number, from 1 on.
        pieces: from the number of a region, from 0 on, to some values of it at a time, of both sides [N, some] and
            [M, some]. Each is called as often as all distances have to be held a few rows at a time.
        shape: N and M.
        distances: of samples of both sides, which add up over pieces and regions.
        upper: whether both sides are the same; then distances are to the first of these rows and all later ones.
    """
    for first, last in row_blocks(shape[0], 6 * 8, columns=shape[1]):
        spans = [(first + a, first + b) for a, b in row_blocks(last - first, 8)] if upper else [(first, last)]
        whole: list[Tensor] = []
        for region in range(1, regions + 1):
            blocks: list[Tensor] = []
            for x, y in pieces(region - 1):
                blocks = _sums(blocks, [distances(x[a:b], y[a if upper else 0 :]) for a, b in spans])
            whole = _sums(whole, blocks)
            yield from ((region, a, b, block) for (a, b), block in zip(spans, blocks, strict=True))
        yield from ((0, a, b, block) for (a, b), block in zip(spans, whole, strict=True))


def _sums(blocks: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    return [x + y for x, y in zip(blocks, others, strict=True)] if blocks else others
