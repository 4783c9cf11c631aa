# SPDX-License-Identifier: Apache-2.0
"""Regions of an image and what is fixed with them for a run, found or taken over: gamma, clusters and baseline."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor._formatting import Band
from genmonitor._io import Progress, no_progress, write_json
from genmonitor._manifest import RegionsManifest
from genmonitor.encoders.frozen import SiteEncoder
from genmonitor.evaluation.baseline import DRAWS, measure_baseline
from genmonitor.evaluation.data.images import MAX_HELD, ImageSet, fingerprint
from genmonitor.evaluation.data.reference import RealSplit, split_reference
from genmonitor.evaluation.regions.clustering import by_content, find_clusters, region_notes
from genmonitor.evaluation.regions.metrics import Compared, RealRegions
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.functional.discrepancy import view_kernels, views_state
from genmonitor.kernels import Kernel
from genmonitor.linalg.clustering import LINKAGES, Linkage
from genmonitor.partition import PixelPartition

SKETCH = 64
"""Fingerprints of images that are kept: the smallest ones, from which the overlap of two sets can be told."""
REFERENCE, REFERENCE_BYTES = 1000, 2**28
"""Real images that fix the views, fewer where they are large, but never fewer than are compared."""
SAME_DATA = 0.3
"""Overlap from which on two sets are splits of the same data: two halves of it have a third in common."""


@dataclass(frozen=True)
class Regions:
    """Regions of images and what else is fixed for a run: found in real images, on the CPU.

    Attributes:
        partition: the regions.
        kernel: with its gamma set.
        baseline: what real images score in place of generated ones, by value.
        value_range: lowest and highest value of a pixel.
        views: both views of images and their kernels, by real images that are not compared, see `views_state`.
        cka: the matrix that the clusters were found in, None where they were given or taken from a saved state.
        average: the average image [C, H, W], None where taken from a saved state.
        linkage: by which the clusters were found, None where they were given.
        stability: how well halves of the images agree on them, see `FoundClusters`; empty where they were given.
        reused: the file of an earlier run that they were taken from, if any.
        sketch: of the images that the clusters were found in, see `SavedRegions`.
    """

    partition: PixelPartition
    kernel: Kernel
    baseline: dict[str, Band]
    value_range: tuple[float, float]
    views: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    cka: Tensor | None = None
    average: Tensor | None = None
    linkage: Linkage | None = None
    stability: dict[str, float] = field(default_factory=dict)
    reused: str | None = None
    sketch: tuple[str, ...] = ()

    def notes(self) -> tuple[str, ...]:
        """Return notes for the user about clusters that are unstable or too scattered to name."""
        return region_notes(self.partition, self.stability) if self.stability else ()

    def to_manifest(self) -> RegionsManifest:
        """Return plain Python only, without the partition, which is a file, and what is drawn once."""
        return {
            "gamma": self.kernel.resolved_gamma,
            "baseline": {name: list(band) for name, band in self.baseline.items()},
            "range": list(self.value_range),
            "linkage": self.linkage,
            "stability": dict(self.stability),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain Python only, without what is drawn once."""
        of = self.partition
        found = {"labels": of.labels, "site_size": of.patch_size, "names": of.names, "views": self.views}
        return {**found, **self.to_manifest()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], kernel: Kernel) -> Regions:
        """Make it from what `state_dict` returned and a kernel of the same kind."""
        partition = PixelPartition(state["labels"], state["site_size"], state["names"])
        return cls(
            partition,
            replace(kernel, gamma=state["gamma"]),
            {name: (band[0], band[1], band[2]) for name, band in state["baseline"].items()},
            (float(state["range"][0]), float(state["range"][1])),
            {view: dict(tensors) for view, tensors in state["views"].items()},
            linkage=state["linkage"],
            stability=dict(state["stability"]),
        )


@dataclass(frozen=True)
class RegionFinder:
    """Finds gamma, clusters and baseline in real images.

    Attributes:
        settings: what the regions and their baseline depend on.
        to_sites: from images to the maps whose sites are clustered.
    """

    settings: RegionSettings
    to_sites: SiteEncoder

    def split(self, real: ImageSet) -> RealSplit:
        """Choose which real images serve for what."""
        of = self.settings
        return split_reference(real, of.n_cluster_images, of.n_samples, of.block_size, of.seed, of.patch_size)

    def find(
        self,
        split: RealSplit,
        device: torch.device,
        progress: Progress = no_progress,
        earlier: SavedRegions | None = None,
    ) -> Regions:
        """Find what is fixed for a run.

        Args:
            split: which images serve for what.
            device: where to compute.
            progress: wraps what takes long.
            earlier: clusters of an earlier run to take instead of looking for some, if it had the same settings and
                most of its images were these; otherwise those found get the numbers of those that they resemble.
        """
        images = split.regions.read(range(len(split.regions)))
        prints = [fingerprint(image) for image in images]
        order = by_content(prints)
        images = images[order]

        def apart() -> Tensor:  # read once the matrices of the clustering have gone
            compared = set(map(fingerprint, split.comparison.read()))
            return torch.tensor([prints[i] not in compared for i in order.tolist()])

        sites = self.to_sites(images.to(device))
        kernel = self.settings.kernel.resolved(sites.flatten(1))
        sketch = tuple(sorted(prints)[:SKETCH])
        fits = earlier is not None and earlier.fits(sketch, tuple(sites.shape[2:]), self.settings.of_clusters())
        clusters = self._clusters(sites, apart, kernel, progress, earlier, fits) | {"sketch": sketch}
        if self.settings.region_names:
            clusters["partition"] = clusters["partition"].named(self.settings.region_names)
        clusters |= {"value_range": (float(images.min()), float(images.max())), "average": images.mean(0)}
        del images, sites  # large ones fit in memory once, and the baseline needs others
        found = Regions(**clusters, kernel=kernel, baseline={}, views=self._views(split, clusters["partition"], device))
        return replace(found, baseline=self._baseline(split, found, device, progress))

    def compared(self, regions: Regions) -> Compared:
        """Return what is fixed for a run of how images are compared."""
        of = self.settings
        return Compared(regions.partition, regions.kernel, regions.views, of.block_size, of.seed)

    def _views(self, split: RealSplit, partition: PixelPartition, device: torch.device) -> dict[str, dict[str, Tensor]]:
        """Fix both views of images by real ones that are not compared: a permutation test is then exact."""
        size = 4 * math.prod(split.baseline.shape)
        count = max(self.settings.n_samples, min(REFERENCE, REFERENCE_BYTES // size))
        maps = self.to_sites(split.baseline.read(range(min(count, len(split.baseline)))).to(device))
        views = view_kernels([maps], partition)
        return views_state({view: kernels.balanced(maps) for view, kernels in views.items()})

    def _clusters(
        self,
        sites: Tensor,
        apart: Callable[[], Tensor],
        kernel: Kernel,
        progress: Progress,
        earlier: SavedRegions | None,
        fits: bool,
    ) -> dict[str, Any]:
        """Return the partition, and how it was found where it was; `apart` says which images are not compared with."""
        if self.settings.partition is not None:
            return {"partition": self.settings.partition}
        if earlier is not None and fits:
            known: dict[str, Any] = {"linkage": earlier.linkage, "stability": earlier.stability}
            return {"partition": earlier.partition, "reused": str(earlier.path), **known}
        of = self.settings
        of.check_enough(len(sites))
        how: dict[str, Any] = {"linkage": of.linkage, "batch_estimator": of.batch_estimator}
        found = find_clusters(sites, kernel, of.n_clusters, of.patch_size, progress, **how)
        partition, stability = constant_apart(found.partition, sites, apart()), found.stability
        if earlier is not None:  # the same region keeps its number and its color
            new = partition.numbered_like(earlier.partition) | {0: 0}
            partition = PixelPartition(partition.labels.clone().apply_(new.get), partition.patch_size)
            names = {f"cluster_{one}": f"cluster_{other}" for one, other in new.items()}
            stability = {names.get(name, name): x for name, x in stability.items()}
        return {"partition": partition, "cka": found.cka, "linkage": found.linkage, "stability": stability}

    def _baseline(self, split: RealSplit, found: Regions, device: torch.device, progress: Progress) -> dict[str, Band]:
        of, regions = self.settings, list(found.partition.regions())
        real = self.to_sites(split.comparison.read().to(device))
        compared, names = RealRegions(self.compared(found), real), ("image", "product", *regions, "mmd")

        def measure(draw: Tensor) -> dict[str, float]:
            values = compared.measure(self.to_sites(draw.to(device)), testable=False).values
            return {name: values[name] for name in names}

        similarities, drawn = [*regions, "image", "product"], split.baseline
        if len(drawn) < DRAWS * of.n_samples and 4 * len(drawn) * math.prod(drawn.shape) <= MAX_HELD:
            drawn.read()  # once, as the draws overlap
        candidates = torch.arange(len(drawn))
        return measure_baseline(measure, drawn.read, candidates, of.n_samples, of.seed, regions, similarities, progress)


def constant_apart(partition: PixelPartition, sites: Tensor, apart: Tensor) -> PixelPartition:
    """Return the partition with sites as constant that vary in none of the maps [n, c, h, w] of those apart [n].

    Were sites chosen for not varying in images that are compared with too, any sample that varies there would count as
    a difference, also a real one. A cluster that would lose all its sites keeps them.

    Example:
        >>> maps = torch.tensor([[[[0.0, 0.0]]], [[[1.0, 0.0]]], [[[2.0, 1.0]]]])
        >>> constant_apart(PixelPartition(torch.tensor([[1, 1]])), maps, torch.tensor([True, True, False])).labels
        tensor([[1, 0]])
    """
    if not apart.any():
        return partition
    # a few at a time: large ones fit in memory once
    some = [x[keep] for x, keep in zip(sites.split(64), apart.to(sites.device).split(64), strict=True) if keep.any()]
    ranges = torch.stack([x.amax(0) for x in some]).amax(0) - torch.stack([x.amin(0) for x in some]).amin(0)
    varies = F.max_pool2d(ranges.amax(0)[None].float(), partition.patch_size)[0].cpu() > 0
    varies |= ~torch.isin(partition.labels, partition.labels[varies])
    return PixelPartition(torch.where(varies, partition.labels, 0), partition.patch_size)


@dataclass(frozen=True)
class SavedRegions:
    """Regions that an earlier run found.

    Attributes:
        path: of their file.
        settings: that they depend on, as JSON keeps them.
        partition: the regions.
        linkage: by which they were found.
        stability: how well halves of the images agreed on them, see `FoundClusters`.
        sketch: the smallest fingerprints of the images.

    References:
        Broder, "On the resemblance and containment of documents", 1997.
    """

    path: Path
    settings: Mapping[str, Any]
    partition: PixelPartition
    linkage: Linkage
    stability: dict[str, float]
    sketch: tuple[str, ...]

    def fits(self, sketch: tuple[str, ...], size: tuple[int, ...], settings: Mapping[str, Any]) -> bool:
        """Return True if images of this size and sketch are a split of the same data, and the settings are the same."""
        smallest = sorted({*self.sketch, *sketch})[:SKETCH]
        common = set(self.sketch) & set(sketch)
        overlap = sum(one in common for one in smallest) / max(1, len(smallest))
        same = self.settings == json.loads(json.dumps(settings))
        return same and overlap >= SAME_DATA and self.partition.image_size == size


def save_regions(regions: Regions, settings: Mapping[str, Any], path: Path) -> None:
    """Write a partition, and next to it how it was found if it was.

    Args:
        regions: what to write.
        settings: what the regions depend on, as plain Python.
        path: the .npz file; the other file is called the same and ends in .json.
    """
    regions.partition.save(path)
    if regions.linkage is not None:
        how = {"linkage": regions.linkage, "stability": regions.stability, "images": list(regions.sketch)}
        write_json(path.with_suffix(".json"), {"settings": dict(settings), **how})


def saved_regions(path: Path) -> SavedRegions | None:
    """Read what `save_regions` wrote, None where there is none, or it is damaged."""
    try:
        how = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if how["linkage"] not in LINKAGES:
            return None
        stability = {str(name): float(value) for name, value in how["stability"].items()}
        partition, sketch = PixelPartition.load(path), tuple(map(str, how["images"]))
        return SavedRegions(path, dict(how["settings"]), partition, how["linkage"], stability, sketch)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
