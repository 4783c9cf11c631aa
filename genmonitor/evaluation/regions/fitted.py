# SPDX-License-Identifier: Apache-2.0
"""Regions and real images of a fitted RegionEvaluator, with real images to find copies of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from genmonitor.distributed import Collective
from genmonitor.evaluation.regions.metrics import RegionMetrics
from genmonitor.evaluation.regions.search import RegionFinder, Regions
from genmonitor.functional.permutation import MIN_SAMPLES
from genmonitor.images.image_set import ImageSet, fingerprint
from genmonitor.images.split import RealSplit
from genmonitor.linalg.distances import knn

MAX_IMAGES = 5000
MAX_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class Fitted:
    """State of a fitted RegionEvaluator: the regions, and the real side of the comparison.

    Attributes:
        regions: Fixed values of the run.
        real: Real images of this process [m, C, H, W].
        real_origin: Origin of the images of all processes, for the manifest.
        metrics: Metrics that hold the real side.
        nearest: Real images to find copies of; None on all processes but rank zero.
    """

    regions: Regions
    real: Tensor
    real_origin: dict[str, Any]
    metrics: RegionMetrics
    nearest: NearestImages | None

    @classmethod
    def of(cls, regions: Regions, finder: RegionFinder, split: RealSplit, probe: Tensor, comm: Collective) -> Fitted:
        """Read this process's part of the real images to compare with.

        Args:
            regions: Regions that were found.
            finder: Finder with the settings of the metrics.
            split: Split of the real images by purpose.
            probe: Some generated images, on the device to evaluate on.
            comm: Processes that evaluate together.
        """
        compared = split.comparison
        with comm.all_ranks_or_none():
            real = compared.read(comm.rank_indices(len(compared)))
            # the first process may have no images if there are fewer images than processes
            nearest = _known(split.baseline, real) if comm.rank == 0 and len(real) else None
            maps = finder.to_sites(real.to(probe.device))
        # the fingerprint is that of rank zero's images, the first of all
        origin = {"from": compared.name, "indices": compared.indices, "count": len(real), "sha256": fingerprint(real)}
        testable = min(len(compared), finder.settings.n_samples) >= MIN_SAMPLES
        metrics = RegionMetrics(finder.compared(regions), maps, testable)
        return cls(regions, real.to(probe.device), origin, metrics, nearest)


class NearestImages(NamedTuple):
    """Real images that are not compared with, to find the most similar ones.

    Attributes:
        images: Images [n, C, H, W].
        indices: Indices of the images in their data set [n]; empty for training images given separately.
        usual: Median distance of other real images to the nearest of them.
    """

    images: Tensor
    indices: list[int]
    usual: float

    @classmethod
    def among(cls, images: Tensor, indices: list[int], real: Tensor) -> NearestImages:
        """Search these images; the usual distance is that of real ones to compare with [m, C, H, W]."""
        return cls(images, indices, float(_nearest(real[:200].cpu(), images)[0].median()))

    def find(self, generated: Tensor) -> tuple[Tensor, list[float]]:
        """Return the most similar real images and their distances.

        Args:
            generated: Generated images [k, C, H, W], finite.

        Returns:
            Real images [k, C, H, W], and the Euclidean distance of the pixels to each, as a multiple of the usual one.
            It is about 1 for a generator that matches the data and near 0 for one that copies them; 0 if all distances
            are 0.

        Example:
            >>> known = NearestImages(torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1), [0, 1], usual=0.1)
            >>> images, distances = known.find(torch.tensor([0.95]).reshape(1, 1, 1, 1))
            >>> images.item(), round(distances[0], 3)
            (1.0, 0.5)
        """
        distances, which = _nearest(generated.cpu(), self.images)
        return self.images[which], (distances / max(self.usual, torch.finfo(torch.float32).tiny)).tolist()


def _nearest(images: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distance of each image to the nearest of others [n], and its index [n]."""
    distances, indices = knn(images.flatten(1), among.flatten(1), 1)
    return distances[:, 0].sqrt(), indices[:, 0]


def _known(images: ImageSet, real: Tensor) -> NearestImages:
    """Read the first images of the baseline, at most 5000 and 64 MiB."""
    count = max(1, min(MAX_IMAGES, MAX_BYTES // max(1, real[0].nbytes)))
    return NearestImages.among(images.first(count), (images.indices or [])[:count], real)
