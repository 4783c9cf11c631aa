# SPDX-License-Identifier: Apache-2.0
"""What is fixed for a run about the regions of an image: kernel width, clusters and baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from genmonitor._validation import check_at_least, check_whole_blocks
from genmonitor._validation.arguments import check_cka_arguments
from genmonitor.evaluation.baseline import Band, measure_baseline
from genmonitor.evaluation.data.reference import RealSplit
from genmonitor.evaluation.encoders import SiteEncoder
from genmonitor.evaluation.progress import Progress, no_progress
from genmonitor.functional.cka import CLUSTER_TOLERANCE, pixel_cka
from genmonitor.functional.cms import cms_from_means
from genmonitor.functional.mmd import mmd_from_means
from genmonitor.kernels import Kernel
from genmonitor.kernels.means import KernelMeans, check_estimator
from genmonitor.metrics.cms import CosineMeanSimilarity
from genmonitor.partition import PixelPartition


@dataclass(frozen=True)
class RegionFit:
    """What was found in real images, on the CPU.

    Attributes:
        partition: the regions.
        kernel: with its gamma set.
        baseline: what real images get in place of generated ones, by value.
        value_range: lowest and highest value of a pixel.
        cka: the matrix that the clusters were found in, None where they were given or taken from a saved state.
        average: the average image [C, H, W], None where taken from a saved state.
    """

    partition: PixelPartition
    kernel: Kernel
    baseline: dict[str, Band]
    value_range: tuple[float, float]
    cka: Tensor | None = None
    average: Tensor | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain Python only, without what is drawn once."""
        return {
            "labels": self.partition.labels,
            "site_size": self.partition.patch_size,
            "gamma": self.kernel.gamma,
            "baseline": {name: list(band) for name, band in self.baseline.items()},
            "range": list(self.value_range),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], kernel: Kernel) -> RegionFit:
        """Make it from what `state_dict` returned and a kernel of the same kind."""
        return cls(
            PixelPartition(state["labels"], state["site_size"]),
            replace(kernel, gamma=state["gamma"]),
            {name: (band[0], band[1], band[2]) for name, band in state["baseline"].items()},
            (float(state["range"][0]), float(state["range"][1])),
        )


class RegionMetric(CosineMeanSimilarity):
    """CMS of image and regions, and the image's unbiased MMD, from one pass over the distances."""

    def _value(self, means: KernelMeans) -> dict[str, Tensor]:
        values: Any = cms_from_means(means, self.partition)
        return values | {"mmd": mmd_from_means(means.without_diagonal())}


@dataclass(frozen=True)
class RegionFinder:
    """Finds kernel width, clusters and baseline in real images.

    Attributes:
        n_clusters: None to choose.
        partition: the user's own clusters instead of found ones.
        n_cluster_images: images for the kernel's width and the clusters.
        n_samples: images in a draw of the baseline.
        patch_size: side of a site.
        kernel: its gamma is taken from the images where it is None.
        block_size: of the estimator.
        to_sites: from images to the maps whose sites are clustered.
        seed: of the draws of the baseline.
    """

    n_clusters: int | None
    partition: PixelPartition | None
    n_cluster_images: int
    n_samples: int
    patch_size: int
    kernel: Kernel
    block_size: int | None
    to_sites: SiteEncoder
    seed: int

    def __post_init__(self) -> None:
        check_at_least("n_samples", self.n_samples, 2)
        check_cka_arguments(self.kernel, self.patch_size, 1e-6, None)
        check_estimator(self.kernel, self.partition, self.block_size)
        check_whole_blocks("generated", self.n_samples, self.block_size)
        if self.n_clusters is not None:
            check_at_least("n_clusters", self.n_clusters, 1)
        check_at_least("n_cluster_images", self.n_cluster_images, 2)
        if self.partition is None:
            self.check_enough(self.n_cluster_images)
        elif self.n_clusters is not None:
            raise ValueError(
                f"Expected `n_clusters` or `partition`, but got both, {self.n_clusters} and {self.partition}."
            )

    def check_enough(self, n: int) -> None:
        """Refuse fewer images than clusters can be found in."""
        least = max(10, 2 * (self.n_clusters or 1))
        if n < least:
            raise ValueError(
                f"Expected `n_cluster_images` of at least {least} images, 10 and 2 per cluster, but got {n}: with "
                "fewer all pixels seem to vary together. Give more, fewer clusters, or your own `partition`."
            )

    def find(self, split: RealSplit, device: torch.device, progress: Progress = no_progress) -> RegionFit:
        """Find what is fixed for a run.

        Args:
            split: which images serve for what.
            device: where to compute.
            progress: wraps what takes long.
        """
        images = split.source.read(split.for_clusters)
        sites = self.to_sites(images.to(device))
        kernel, partition, cka = self.kernel.resolved(sites.flatten(1)), self.partition, None
        if partition is None:
            self.check_enough(len(images))
            partition, cka = find_clusters(sites, kernel, self.n_clusters, self.patch_size, progress)
        baseline = self._baseline(split, partition, kernel, device, progress)
        value_range = (float(images.min()), float(images.max()))
        return RegionFit(partition, kernel, baseline, value_range, cka, images.mean(0))

    def settings(self) -> dict[str, Any]:
        """Return what values depend on, as plain Python."""
        names = ("n_samples", "n_cluster_images", "n_clusters", "patch_size", "block_size", "seed")
        partition = self.partition
        return {name: getattr(self, name) for name in names} | {
            "kernel": type(self.kernel).__name__,
            "gamma": self.kernel.gamma,
            "partition": None if partition is None else partition.labels.tolist(),
            "site_size": None if partition is None else partition.patch_size,
        }

    def _baseline(
        self, split: RealSplit, partition: PixelPartition, kernel: Kernel, device: torch.device, progress: Progress
    ) -> dict[str, Band]:
        real = self.to_sites(split.compared.read(split.for_comparison).to(device))
        metric = RegionMetric(partition, kernel, self.block_size, reset_real_features=False, sync_on_compute=False)
        metric.to(device).update(real, real=True)
        names = ("image", "product", *partition.regions(), "mmd")

        def measure(draw: Tensor) -> dict[str, float]:
            metric.reset()
            metric.update(self.to_sites(draw.to(device)), real=False)
            values: Any = metric.compute()
            return {name: float(values[name]) for name in names}

        return measure_baseline(measure, split.source.read, split.for_baseline, self.n_samples, self.seed, progress)


def find_clusters(
    sites: Tensor, kernel: Kernel, n_clusters: int | None, patch_size: int, progress: Progress = no_progress
) -> tuple[PixelPartition, Tensor]:
    """Cluster the sites of maps [N, c, h, w]; return the partition and the CKA matrix, on the CPU."""
    (cka,) = [
        pixel_cka(sites, kernel=kernel, patch_size=patch_size, tolerance=CLUSTER_TOLERANCE).cpu()
        for _ in progress(range(1), "clusters")
    ]
    h, w = (size // patch_size for size in sites.shape[2:])
    return PixelPartition.from_cka(cka, (h, w), n_clusters, patch_size), cka
