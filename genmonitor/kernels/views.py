# SPDX-License-Identifier: Apache-2.0
"""Views of samples, region by region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor.linalg.whitening import Whitening, slices_of
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

    def values(self, region: int, samples: Tensor) -> Tensor:
        """Return the columns of a region [N, D]."""
        return samples.flatten(1).index_select(1, self.columns[region])


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

    def values(self, region: int, images: Tensor) -> Tensor:
        """Return the whitened pixels of a region [N, D]."""
        inside = self.inside[region]
        box = slices_of(inside)
        return self.whitening(images, inside, box)[:, :, inside[box]].flatten(1)


SampleView = Structure | Texture
"""View of samples [N, ...] in regions."""
