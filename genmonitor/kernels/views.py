# SPDX-License-Identifier: Apache-2.0
"""Views of samples, region by region, a few values at a time, whose distances add up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor.linalg.chunking import column_blocks
from genmonitor.linalg.whitening import Whitening
from genmonitor.partition import PixelPartition


class Structure(NamedTuple):
    """Plain values: pixels of images, or features.

    Attributes:
        columns: Columns of each region, indices into flattened samples.
    """

    columns: list[Tensor]

    @classmethod
    def of(cls, samples: Tensor, partition: PixelPartition | None) -> Structure:
        """Make the view of samples [N, ...] for the regions of a partition, or as a whole."""
        if partition is None:
            return cls([torch.arange(samples[0].numel(), device=samples.device)])
        labels, channels = partition.regions().values(), samples.shape[1]
        return cls([partition.columns(label, channels).to(samples.device) for label in labels])

    def __len__(self) -> int:
        return len(self.columns)

    def pieces(self, region: int, *sets: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yield the columns of a region, some at a time."""
        for some in column_blocks(self.columns[region], sum(map(len, sets))):
            yield tuple(x.flatten(1).index_select(1, some) for x in sets)


@dataclass(frozen=True, eq=False)
class Texture:
    """Whitened images: the whole, and each region by itself, independent of other regions.

    Attributes:
        whitening: Whitening by real images, or by those of both sides.
        inside: Boolean masks of the whole and each region [H, W].
    """

    whitening: Whitening
    inside: list[Tensor]

    @classmethod
    def of(cls, whitening: Whitening, partition: PixelPartition | None) -> Texture:
        """Make the view of whole images, then of the regions of a partition."""
        inside = [torch.ones_like(whitening.mean[0], dtype=torch.bool)]
        if partition is not None:
            labels = partition.pixel_labels().to(inside[0].device)
            inside += [labels == label for label in partition.regions().values()]
        return cls(whitening, inside)

    def __len__(self) -> int:
        return len(self.inside)

    def pieces(self, region: int, *sets: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yield the whitened pixels of a region, in parts."""
        inside, count = self.inside[region], sum(map(len, sets))
        for part in self.whitening.strips(inside, count):
            yield tuple(self.whitening(x, inside, part)[:, :, inside[part]].flatten(1) for x in sets)


SampleView = Structure | Texture
"""View of samples [N, ...] in regions."""
