# SPDX-License-Identifier: Apache-2.0
"""What is fixed for a run about the regions of an image: kernel width, clusters and baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from genmonitor._validation import check_at_least, check_bool, check_one_of, check_whole_blocks
from genmonitor._validation.arguments import check_cka_arguments
from genmonitor.encoders.frozen import SiteEncoder
from genmonitor.evaluation.baseline import Band, measure_baseline
from genmonitor.evaluation.data.images import fingerprint
from genmonitor.evaluation.data.reference import RealSplit
from genmonitor.evaluation.progress import Progress, no_progress
from genmonitor.evaluation.regions.agreement import Stability
from genmonitor.evaluation.regions.clustering import by_content, find_clusters, region_notes
from genmonitor.evaluation.regions.metrics import RegionMetric
from genmonitor.evaluation.regions.saved import SKETCH, SavedRegions
from genmonitor.functional._region_kernel import region_scales
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.means import check_estimator, region_columns
from genmonitor.linalg.clustering import LINKAGES, Linkage
from genmonitor.partition import PixelPartition

OWN_WIDTH = 4.0
"""The gamma of a region with a width of its own, times its mean squared distance."""


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
        linkage: by which the clusters were found, None where they were given.
        stability: how well halves of the images agree on them, None where they were given.
        reused: the file of an earlier run that they were taken from, if any.
        sketch: of the images that the clusters were found in, see `SavedRegions`.
        widths: gammas of regions with a width of their own, by name; empty where the kernel's serves all.
    """

    partition: PixelPartition
    kernel: Kernel
    baseline: dict[str, Band]
    value_range: tuple[float, float]
    cka: Tensor | None = None
    average: Tensor | None = None
    linkage: Linkage | None = None
    stability: Stability | None = None
    reused: str | None = None
    sketch: tuple[str, ...] = ()
    widths: dict[str, float] = field(default_factory=dict)

    def stability_by_name(self) -> dict[str, float]:
        """Return the stability of the whole, "overall", and of each cluster; empty where they were given."""
        return {} if self.stability is None else self.stability.by_name()

    def notes(self) -> tuple[str, ...]:
        """Return what the user should know of clusters that were found: unstable ones, or such as are no place."""
        if self.stability is None:
            return ()
        return region_notes(self.partition, self.stability)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain Python only, without what is drawn once."""
        return {
            "labels": self.partition.labels,
            "site_size": self.partition.patch_size,
            "gamma": self.kernel.gamma,
            "widths": dict(self.widths),
            "baseline": {name: list(band) for name, band in self.baseline.items()},
            "range": list(self.value_range),
            "linkage": self.linkage,
            "stability": self.stability_by_name(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], kernel: Kernel) -> RegionFit:
        """Make it from what `state_dict` returned and a kernel of the same kind."""
        return cls(
            PixelPartition(state["labels"], state["site_size"]),
            replace(kernel, gamma=state["gamma"]),
            {name: (band[0], band[1], band[2]) for name, band in state["baseline"].items()},
            (float(state["range"][0]), float(state["range"][1])),
            linkage=state.get("linkage"),
            stability=Stability.from_names(state.get("stability", {})),
            widths=dict(state["widths"]),
        )


@dataclass(frozen=True)
class RegionFinder:
    """Finds kernel width, clusters and baseline in real images.

    Attributes:
        n_clusters: None to choose.
        partition: the user's own clusters instead of found ones.
        n_cluster_images: at most so many images for the kernel's width and the clusters; None for a budget.
        n_samples: images in a draw of the baseline.
        patch_size: side of a site.
        kernel: its gamma is taken from the images where it is None.
        block_size: of the estimator.
        to_sites: from images to the maps whose sites are clustered.
        seed: of the draws of the baseline.
        linkage: None to choose.
        own_widths: whether each region has a width of its own.
        batch_estimator: images per mini-batch of the CKA that clusters are found by; None for all at once.
    """

    n_clusters: int | None
    partition: PixelPartition | None
    n_cluster_images: int | None
    n_samples: int
    patch_size: int
    kernel: Kernel
    block_size: int | None
    to_sites: SiteEncoder
    seed: int
    linkage: Linkage | None = None
    own_widths: bool = False
    batch_estimator: int | None = None

    def __post_init__(self) -> None:
        check_at_least("n_samples", self.n_samples, 2)
        check_cka_arguments(self.kernel, self.patch_size, 1e-6, self.batch_estimator)
        check_estimator(self.kernel, self.partition, self.block_size)
        check_whole_blocks("generated", self.n_samples, self.block_size)
        if self.n_clusters is not None:
            check_at_least("n_clusters", self.n_clusters, 1)
        if self.linkage is not None:
            check_one_of("linkage", self.linkage, LINKAGES)
        if self.n_cluster_images is not None:
            check_at_least("n_cluster_images", self.n_cluster_images, 2)
            if self.partition is None:
                self.check_enough(self.n_cluster_images)
        if check_bool("own_widths", self.own_widths) and self.kernel != GaussianKernel():
            raise ValueError(
                f"Expected `kernel` to be left out, or GaussianKernel(), with `own_widths`, but got {self.kernel!r}: "
                "the widths are then taken from the images, region by region."
            )
        if self.partition is not None and self.n_clusters is not None:
            raise ValueError(
                f"Expected `n_clusters` or `partition`, but got both, {self.n_clusters} and {self.partition}."
            )

    def check_enough(self, n: int) -> None:
        """Refuse fewer images than clusters can be found in."""
        least = max(10, 2 * (self.n_clusters or 1))
        halves = 2 * (self.batch_estimator or 0)
        if n >= least and n < halves:
            raise ValueError(
                f"Expected `n_cluster_images` of at least {halves} images, two mini-batches of `batch_estimator`="
                f"{self.batch_estimator}, but got {n}: halves of the images are compared. Give more, or a smaller one."
            )
        if n < least:
            raise ValueError(
                f"Expected `n_cluster_images` of at least {least} images, 10 and 2 per cluster, but got {n}: with "
                "fewer all pixels seem to vary together. Give more, fewer clusters, or your own `partition`."
            )

    def find(
        self,
        split: RealSplit,
        device: torch.device,
        progress: Progress = no_progress,
        earlier: SavedRegions | None = None,
    ) -> RegionFit:
        """Find what is fixed for a run.

        Args:
            split: which images serve for what.
            device: where to compute.
            progress: wraps what takes long.
            earlier: clusters of an earlier run to take instead of looking for some, if most of its images were these.
        """
        images = split.source.read(split.for_clusters)
        prints = [fingerprint(image) for image in images]
        images = images[by_content(prints)]
        sites = self.to_sites(images.to(device))
        kernel = self.kernel.resolved(sites.flatten(1))
        sketch = tuple(sorted(prints)[:SKETCH])
        fits = earlier is not None and earlier.fits(sketch, tuple(sites.shape[2:]))
        clusters = self._clusters(sites, kernel, progress, earlier if fits else None) | {"sketch": sketch}
        clusters["widths"] = own_widths(sites, clusters["partition"]) if self.own_widths else {}
        baseline = self._baseline(split, clusters["partition"], kernel, clusters["widths"], device, progress)
        value_range = (float(images.min()), float(images.max()))
        return RegionFit(**clusters, kernel=kernel, baseline=baseline, value_range=value_range, average=images.mean(0))

    def _clusters(
        self, sites: Tensor, kernel: Kernel, progress: Progress, earlier: SavedRegions | None
    ) -> dict[str, Any]:
        """Return the partition, and how it was found where it was."""
        if self.partition is not None:
            return {"partition": self.partition}
        if earlier is not None:
            known: dict[str, Any] = {"linkage": earlier.linkage, "stability": earlier.stability}
            return {"partition": earlier.partition, "reused": str(earlier.path), **known}
        self.check_enough(len(sites))
        how: dict[str, Any] = {"linkage": self.linkage, "batch_estimator": self.batch_estimator}
        found = find_clusters(sites, kernel, self.n_clusters, self.patch_size, progress, **how)
        return {"partition": found.partition, "cka": found.cka, "linkage": found.linkage, "stability": found.stability}

    def region_settings(self) -> dict[str, Any]:
        """Return what the clusters depend on, as plain Python."""
        names = ("n_cluster_images", "n_clusters", "linkage", "patch_size", "batch_estimator", "kernel", "gamma")
        return {name: value for name, value in self.settings().items() if name in names}

    def settings(self) -> dict[str, Any]:
        """Return what values depend on, as plain Python."""
        names = (
            "n_samples",
            "n_cluster_images",
            "n_clusters",
            "linkage",
            "patch_size",
            "batch_estimator",
            "block_size",
            "seed",
            "own_widths",
        )
        partition = self.partition
        return {name: getattr(self, name) for name in names} | {
            "kernel": type(self.kernel).__name__,
            "gamma": self.kernel.gamma,
            "partition": None if partition is None else partition.labels.tolist(),
            "site_size": None if partition is None else partition.patch_size,
        }

    def _baseline(
        self,
        split: RealSplit,
        partition: PixelPartition,
        kernel: Kernel,
        widths: Mapping[str, float],
        device: torch.device,
        progress: Progress,
    ) -> dict[str, Band]:
        real = self.to_sites(split.compared.read(split.for_comparison).to(device))
        metric = RegionMetric(
            partition, kernel, self.block_size, widths, reset_real_features=False, sync_on_compute=False
        )
        metric.to(device).update(real, real=True)
        names = ("image", "product", *partition.regions(), "mmd")

        def measure(draw: Tensor) -> dict[str, float]:
            metric.reset()
            metric.update(self.to_sites(draw.to(device)), real=False)
            values: Any = metric.compute()
            return {name: float(values[name]) for name in names}

        regions = list(partition.regions())
        read, candidates = split.source.read, split.for_baseline
        return measure_baseline(
            measure, read, candidates, self.n_samples, self.seed, regions, [*regions, "image", "product"], progress
        )


def own_widths(sites: Tensor, partition: PixelPartition) -> dict[str, float]:
    """Return the gamma of each region: 4 over the mean squared distance that maps [n, c, h, w] have in it.

    A region where they do not vary takes the image's.

    Example:
        >>> maps = torch.tensor([[[[0.0, 5.0]]], [[[2.0, 5.0]]], [[[4.0, 5.0]]]])
        >>> own_widths(maps, PixelPartition(torch.tensor([[1, 2]])))
        {'cluster_1': 0.5, 'cluster_2': 0.5}
    """
    scales = region_scales(sites.flatten(1), region_columns(partition, sites) or [])
    gammas = OWN_WIDTH / torch.where(scales > 0, scales, scales.sum())
    return dict(zip(partition.regions(), gammas.tolist(), strict=True))
