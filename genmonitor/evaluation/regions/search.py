# SPDX-License-Identifier: Apache-2.0
"""Regions of an image with the other fixed values of a run: gamma, clusters and baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor._formatting import Band
from genmonitor._io import Progress, no_progress
from genmonitor.encoders.frozen import SiteEncoder
from genmonitor.evaluation.regions.clustering import by_content, find_clusters, region_notes
from genmonitor.evaluation.regions.metrics import Compared, RealRegions, RegionMeasures
from genmonitor.evaluation.regions.values import CONSTANT, IMAGE
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.functional.discrepancy import group_names, view_kernels, views_state
from genmonitor.images.image_set import MAX_HELD, ImageSet, fingerprint
from genmonitor.images.split import DRAWS, RealSplit, split_reference
from genmonitor.kernels import Kernel
from genmonitor.linalg.chunking import MEMORY_BUDGET
from genmonitor.linalg.clustering import Linkage
from genmonitor.partition import PixelPartition

WIDE = 2.0
"""Largest multiplier of the Gaussians in an error ratio. Narrower ones vanish between sets that differ, and then
measure how alike the samples of one set are: they rise while a VAE learns, and hide noise (benchmarks/measure.md).
"""
ERROR = "error of "
"""Prefix of the names of distances in a draw of the baseline."""


def error_views(images: Tensor, partition: PixelPartition) -> dict[str, dict[str, Tensor]]:
    """Return the state of both views of images, with the wide kernels that error ratios take; see `views_state`."""
    views = view_kernels([images], partition)
    return views_state({view: kernels.balanced(images, WIDE) for view, kernels in views.items()})


@dataclass(frozen=True)
class Regions:
    """Regions of images and the other fixed values of a run, found in real images, on the CPU.

    Attributes:
        partition: Regions.
        kernel: Kernel with its gamma set.
        baseline: Values of real images in place of generated ones, by value.
        chance: Median distance of real images in place of generated ones, by region, see `error_ratios`.
        value_range: Lowest and highest value of a pixel.
        views: Both views of images and their kernels, from real images that are not compared with, see `views_state`.
        average: Average image [C, H, W]; None from a saved state.
        linkage: Linkage of the clusters; None if they were given.
        stability: Agreement of halves of the images on the clusters, see `FoundClusters`; empty if they were given.
    """

    partition: PixelPartition
    kernel: Kernel
    baseline: dict[str, Band] = field(default_factory=dict)
    value_range: tuple[float, float] = (0.0, 1.0)
    views: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)
    average: Tensor | None = None
    linkage: Linkage | None = None
    stability: dict[str, float] = field(default_factory=dict)

    def notes(self) -> tuple[str, ...]:
        """Return notes for the user about clusters that are unstable or too scattered to name."""
        return region_notes(self.partition, self.stability) if self.stability else ()

    def error_ratios(self, error: Mapping[str, float]) -> dict[str, float]:
        """Return distances of image and regions as multiples of those of real images in place of generated ones.

        Pixels that never vary use the value of the image.
        """
        of_image = self.chance[IMAGE] or 1.0
        apart = {name: of_image if name == CONSTANT else self.chance[name] or of_image for name in error}
        return {name: distance / apart[name] for name, distance in error.items()}

    def to_manifest(self) -> dict[str, Any]:
        """Return plain Python, without the partition, which has a file, and without data that is drawn once."""
        return {
            "gamma": self.kernel.resolved_gamma,
            "baseline": {name: list(band) for name, band in self.baseline.items()},
            "chance": dict(self.chance),
            "range": list(self.value_range),
            "linkage": self.linkage,
            "stability": dict(self.stability),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain Python, without data that is drawn once."""
        of = self.partition
        found = {"labels": of.labels, "site_size": of.patch_size, "names": of.names, "views": self.views}
        return {**found, **self.to_manifest()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], kernel: Kernel) -> Regions:
        """Make it from the result of `state_dict` and a kernel of the same kind."""
        partition = PixelPartition(state["labels"], state["site_size"], state["names"])
        baseline = {name: (band[0], band[1], band[2]) for name, band in state["baseline"].items()}
        low, high = state["range"]
        views = {view: dict(tensors) for view, tensors in state["views"].items()}
        fixed = replace(kernel, gamma=state["gamma"]), baseline, (float(low), float(high)), views, dict(state["chance"])
        return cls(partition, *fixed, linkage=state["linkage"], stability=dict(state["stability"]))


@dataclass(frozen=True)
class RegionFinder:
    """Finds gamma, clusters and baseline in real images.

    Attributes:
        settings: Settings on which the regions and their baseline depend.
        to_sites: Function from images to the maps whose sites are clustered.
    """

    settings: RegionSettings
    to_sites: SiteEncoder

    def split(self, real: ImageSet) -> RealSplit:
        """Split the real images by purpose."""
        of = self.settings
        return split_reference(real, of.n_cluster_images, of.n_samples, of.block_size, of.seed, of.patch_size)

    def find(
        self, split: RealSplit, device: torch.device, progress: Progress = no_progress, earlier: Regions | None = None
    ) -> Regions:
        """Find the fixed values of a run.

        Args:
            split: Split of the real images by purpose.
            device: Device to compute on.
            progress: Progress bar for the steps that take long.
            earlier: Clusters to use instead of new ones.
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
        found = self._clusters(sites, apart, kernel, progress, earlier)
        names = self.settings.region_names
        partition = found.partition.named(names) if names else found.partition
        value_range = float(images.min()), float(images.max())
        found = replace(found, partition=partition, value_range=value_range, average=images.mean(0))
        del images, sites  # large images fit in memory only once, and the baseline needs others
        found = replace(found, views=self._views(split, found.partition, device))
        baseline = self._baseline(split, found, device, progress)
        chance = {name: baseline.pop(ERROR + name)[1] for name in group_names(found.partition)}
        return replace(found, baseline=baseline, chance=chance)

    def compared(self, regions: Regions) -> Compared:
        """Return the fixed values of a comparison of images."""
        of = self.settings
        return Compared(regions.partition, regions.kernel, regions.views, of.block_size, of.seed)

    def _views(self, split: RealSplit, partition: PixelPartition, device: torch.device) -> dict[str, dict[str, Tensor]]:
        """Fix both views of images by real ones that are not compared with, so that a permutation test is exact."""
        size = 4 * math.prod(split.baseline.shape)
        # fewer if they are large, but never fewer than are compared
        count = max(self.settings.n_samples, min(1000, 2**26 // size))
        maps = self.to_sites(split.baseline.first(count).to(device))
        return error_views(maps, partition)

    def _clusters(
        self, sites: Tensor, apart: Callable[[], Tensor], kernel: Kernel, progress: Progress, earlier: Regions | None
    ) -> Regions:
        """Return the given or found regions; `apart` marks images that are not compared with."""
        of = self.settings
        if of.partition is not None:
            return Regions(of.partition, kernel)
        if earlier is not None:
            return replace(earlier, kernel=kernel)
        of.check_enough(len(sites))
        found = find_clusters(sites, kernel, of, progress)
        partition = constant_apart(found.partition, sites, apart())
        return Regions(partition, kernel, linkage=found.linkage, stability=found.stability)

    def _baseline(self, split: RealSplit, found: Regions, device: torch.device, progress: Progress) -> dict[str, Band]:
        of, regions = self.settings, list(found.partition.regions())
        real = self.to_sites(split.comparison.read().to(device))
        compared, names = RealRegions(self.compared(found), real), ("image", "product", *regions, "mmd")

        similarities, drawn, n = [*regions, "image", "product"], split.baseline, of.n_samples

        def measure(draws: Tensor) -> Iterator[dict[str, float]]:
            measures: Iterable[RegionMeasures]
            if len(drawn) < DRAWS * n and 4 * len(drawn) * math.prod(drawn.shape) <= MAX_HELD:
                drawn.read()  # once, as the draws overlap
            if one_pass(drawn, n, len(real)):
                measures = compared.of_draws(self.to_sites(drawn.read().to(device)), draws)
            else:
                maps = (self.to_sites(drawn.read(draw).to(device)) for draw in draws.tolist())
                measures = (compared.measure(some, testable=False) for some in maps)
            for _, found in zip(progress(draws, "baseline"), measures, strict=True):
                errors = {ERROR + name: error for name, error in found.error.items()}
                yield {name: found.values[name] for name in names} | errors

        return measure_baseline(measure, len(drawn), n, of.seed, regions, similarities)


def one_pass(drawn: ImageSet, n: int, compared: int) -> bool:
    """Return True if all images have fewer pairs than the separate draws, and fit in memory.

    Example:
        >>> some = {count: ImageSet(torch.zeros(count, 1, 4, 4)) for count in (300, 900)}
        >>> [one_pass(images, n=100, compared=100) for images in some.values()]
        [True, False]
    """
    every = len(drawn) + compared
    return every**2 <= DRAWS * n * (n + 2 * compared) and 4 * every * math.prod(drawn.shape) <= MEMORY_BUDGET // 4


def constant_apart(partition: PixelPartition, sites: Tensor, apart: Tensor) -> PixelPartition:
    """Return the partition with sites as constant that do not vary in the maps [n, c, h, w] of `apart` images [n].

    If constant sites were chosen by the images to compare with too, any sample that varies there would count as a
    difference, even a real one. A cluster that would lose all its sites keeps them.

    Example:
        >>> maps = torch.tensor([[[[0.0, 0.0]]], [[[1.0, 0.0]]], [[[2.0, 1.0]]]])
        >>> constant_apart(PixelPartition(torch.tensor([[1, 1]])), maps, torch.tensor([True, True, False])).labels
        tensor([[1, 0]])
    """
    if not apart.any():
        return partition
    # a few at a time, since large ones fit in memory only once
    some = [x[keep] for x, keep in zip(sites.split(64), apart.to(sites.device).split(64), strict=True) if keep.any()]
    ranges = torch.stack([x.amax(0) for x in some]).amax(0) - torch.stack([x.amin(0) for x in some]).amin(0)
    varies = F.max_pool2d(ranges.amax(0)[None].float(), partition.patch_size)[0].cpu() > 0
    varies |= ~torch.isin(partition.labels, partition.labels[varies])
    return PixelPartition(torch.where(varies, partition.labels, 0), partition.patch_size)


def measure_baseline(
    measure: Callable[[Tensor], Iterable[dict[str, float]]],
    candidates: int,
    n: int,
    seed: int,
    together: Sequence[str] = (),
    similarities: Collection[str] = (),
) -> dict[str, Band]:
    """Measure draws of n real images as if they were generated.

    Args:
        measure: Function from draws, indices of candidates [DRAWS, n], to the values of an evaluation of each.
        candidates: Number of real images that generated ones are not compared with. From 20 n on the draws are
            disjoint. Below that they overlap, and the bands are widened accordingly. If it is hardly more than n, draws
            contain images more than once.
        n: Number of images per draw.
        seed: Seed of the draws.
        together: Names of values whose bands hold together, see `simultaneous_bands`.
        similarities: Names of values that are 1 at best, see `simultaneous_bands`.
    """
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(candidates, generator=generator)
    disjoint, all_but_the_same = candidates >= DRAWS * n, candidates < 1.1 * n
    if disjoint:
        draws = shuffled[: DRAWS * n].view(DRAWS, n)
    elif all_but_the_same:
        draws = torch.stack([torch.randint(candidates, (n,), generator=generator) for _ in range(DRAWS)])
    else:
        draws = torch.stack([torch.randperm(candidates, generator=generator)[:n] for _ in range(DRAWS)])
    values: dict[str, list[float]] = {}
    for found in measure(draws):
        for name, value in found.items():
            values.setdefault(name, []).append(value)
    # draws without replacement from a small set vary less than those from the whole population
    widen = 1.0 if disjoint or all_but_the_same else (1 - n / candidates) ** -0.5
    return simultaneous_bands(values, together, similarities, widen)


def simultaneous_bands(
    values: Mapping[str, Sequence[float]],
    together: Sequence[str] = (),
    similarities: Collection[str] = (),
    widen: float = 1.0,
) -> dict[str, Band]:
    """Return prediction intervals: another draw falls below each with a probability of 5 %, and above it with 5 %.

    Values that belong together share the 5 %: another draw falls below *any* of their bands with at most that
    probability (Bonferroni). The intervals are those of Student's t about the median. Those of similarities are
    computed for log(1 - value), since 1 - CMS is skewed and never negative. `benchmarks/detection.md` reports how often
    real images leave them.

    Args:
        values: Values of each draw [D], by name; D at least 2.
        together: Names of values whose bands hold together; every other band holds alone.
        similarities: Names of values that are 1 at best.
        widen: Factor of every distance from the median.

    Example:
        >>> draws = {"mmd": [0.0, 1.0, 2.0], "cluster_1": [0.99, 0.98, 0.98]}
        >>> bands = simultaneous_bands(draws, similarities=["cluster_1"])
        >>> [tuple(round(end, 3) for end in band) for band in bands.values()]
        [(-2.372, 1.0, 4.372), (0.923, 0.98, 0.995)]
    """
    from scipy.special import stdtrit

    out = {}
    for name, found in values.items():
        draws = torch.tensor(found, dtype=torch.float64)
        # real images lie below the band of one value, or below any of all regions, with a nominal probability of 5 %
        tail = 0.05 / len(together) if name in together else 0.05
        reach = widen * float(stdtrit(len(draws) - 1, 1 - tail)) * (1 + 1 / len(draws)) ** 0.5
        skewed = name in similarities and bool((draws < 1).all())  # pixels that never vary have 1, or nearly so
        draws = torch.log1p(-draws) if skewed else draws
        middle, distance = float(draws.quantile(0.5)), reach * float(draws.std())
        low, high = middle - distance, middle + distance
        out[name] = (-math.expm1(high), -math.expm1(middle), -math.expm1(low)) if skewed else (low, middle, high)
    return out
