# SPDX-License-Identifier: Apache-2.0
"""The images that `detection.py` draws from, and the regions found in them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from genmonitor import GaussianKernel, PixelPartition
from genmonitor.evaluation import RegionSettings
from genmonitor.evaluation.regions.clustering import find_clusters

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
from planted import planted_images  # noqa: E402
from regions import digits, photographs, three_regions  # noqa: E402

N = 500
CLUSTERS = 5


@dataclass(frozen=True)
class Source:
    """Images to draw from, and regions found in images that are drawn nowhere else."""

    images: Tensor
    partition: PixelPartition
    n: int

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return as many generated and real images, none of them the same."""
        order = torch.randperm(len(self.images), generator=generator)
        return self.images[order[: self.n]].clone(), self.images[order[self.n : 2 * self.n]]


def sources() -> dict[str, Source]:
    """Return the sets of images, in [0, 1]."""
    return {name: source(name) for name in ("digits", "photographs", "planted", "faces")}


def source(name: str) -> Source:
    """Return one of the sets."""
    images, for_clusters, n, count = {
        "digits": lambda: (digits()[0], 900, 400, CLUSTERS),
        "photographs": lambda: (photographs(6000)[0], 2000, N, CLUSTERS),
        "planted": lambda: ((planted_images(6000, seed=1) + 1) / 2, 2000, N, 4),
        "faces": lambda: ((three_regions(6000, 28)[0] + 1) / 2, 2000, N, 3),
    }[name]()
    images = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(0))]
    some = images[:for_clusters]
    kernel = GaussianKernel().resolved(some.flatten(1))
    return Source(
        images[for_clusters:], find_clusters(some, kernel, RegionSettings(n_clusters=count, patch_size=1)).partition, n
    )
