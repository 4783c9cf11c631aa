# SPDX-License-Identifier: Apache-2.0
"""Stable regions: the linkage and the number of clusters are those on which halves of the images agree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor._io import Progress, no_progress
from genmonitor.evaluation.settings import RegionSettings
from genmonitor.functional.cka import CLUSTER_TOLERANCE, pixel_cka
from genmonitor.images.image_set import fingerprint
from genmonitor.images.split import MAX_SITES, cell_side, chosen_patch_size, cka_work
from genmonitor.kernels import Kernel
from genmonitor.linalg.clustering import Linkage, adjusted_rand_index, best_overlaps, cut_tree, merge_tree, site_points
from genmonitor.partition import PixelPartition, by_size

Option = tuple[Linkage, int]
"""Linkage and number of clusters."""


@dataclass(frozen=True)
class FoundClusters:
    """Clusters of sites and the way they were found.

    Attributes:
        partition: Clusters.
        linkage: Linkage of the clusters.
        stability: Agreement of halves of the images. "overall" is the mean adjusted Rand index over several random
            halvings: 1 for agreement, about 0 for chance. "cluster_1" and so on are the mean Jaccard overlap, in [0,
            1], of a cluster with the cluster of a half that overlaps it most.
    """

    partition: PixelPartition
    linkage: Linkage
    stability: dict[str, float]


def find_clusters(sites: Tensor, kernel: Kernel, of: RegionSettings, progress: Progress = no_progress) -> FoundClusters:
    """Cluster the sites of maps, independently of the order of the maps.

    The maps are halved at random several times. Each half is clustered by each linkage into each number of clusters,
    and the choice on which halves agree best is used for all maps. Partitions with a region of more than 80 % or less
    than 2 % of the varying sites are used only if there is no other.

    Args:
        sites: Maps [N, c, h, w], N at least 4.
        kernel: Kernel with its gamma set.
        of: Settings, of which `n_clusters`, `patch_size`, `linkage` and `batch_estimator` are used.
        progress: Progress bar for the steps that take long.

    References:
        Ben-Hur, Elisseeff and Guyon, "A stability based method for discovering structure in clustered data", 2002.
    """
    patch_size = of.patch_size or chosen_patch_size(tuple(sites.shape[1:]))
    shape = (sites.shape[2] // patch_size, sites.shape[3] // patch_size)
    cell = cell_side(tuple(sites.shape[1:]), patch_size)
    sites, of_cells = F.avg_pool2d(sites, cell), patch_size // cell
    kernel = replace(kernel, gamma=kernel.resolved_gamma * cell**2)  # distances add up over pixels
    sites = sites[content_order(sites).to(sites.device)]

    def matrix(some: Tensor) -> Tensor:
        how: dict[str, Any] = {"patch_size": of_cells, "batch_estimator": of.batch_estimator}
        return pixel_cka(some, kernel=kernel, tolerance=CLUSTER_TOLERANCE, **how).float().cpu()

    (cka,) = [matrix(sites) for _ in progress(range(1), "clusters")]
    # Ward's is left out: it is seldom the most stable, and halves then often disagree
    linkages: tuple[Linkage, ...] = (of.linkage,) if of.linkage else ("average", "smoothed")
    counts = automatic_counts(int((cka.diagonal() != 0).sum())) if of.n_clusters is None else [of.n_clusters]
    found = {(x, c): cut for x in linkages for c, cut in cuts(cka, shape, counts, patch_size, x).items()}
    some, grid = on_a_grid(sites, of_cells)
    pairs = progress(halvings(some, of_cells), "stability of the clusters")
    agreement = Agreement([(Half(matrix(a), grid, linkages), Half(matrix(b), grid, linkages)) for a, b in pairs])
    stability = {option: agreement.mean_index(*option) for option in found}
    best = choose(stability, {option: is_lopsided(partition) for option, partition in found.items()})
    step = _step(shape)
    overlaps = agreement.mean_overlaps(*best, found[best].labels[::step, ::step])
    return FoundClusters(found[best], best[0], {"overall": stability[best]} | overlaps)


def cuts(
    matrix: Tensor, shape: tuple[int, int], counts: Sequence[int], patch_size: int, linkage: Linkage
) -> dict[int, PixelPartition]:
    """Return the result of `PixelPartition.from_cka` for each number of clusters, from one tree."""
    if len(counts) == 1:
        return {counts[0]: PixelPartition.from_cka(matrix, shape, counts[0], patch_size, linkage)}
    tree = merge_tree(site_points(matrix, shape, linkage), linkage)
    out, varying = {}, matrix.diagonal() != 0
    for count in counts:
        labels = varying.long()
        labels[varying] = cut_tree(tree, count)
        out[count] = PixelPartition(by_size(labels.reshape(shape)), patch_size)
    return out


def automatic_counts(varying: int) -> list[int]:
    """Return the numbers of clusters to choose from, for a number of varying sites.

    >>> automatic_counts(61), automatic_counts(7), automatic_counts(2)
    ([2, 3, 4, 5], [2], [1])
    """
    # at most 8 clusters, and at most one for each 12 varying sites
    most = min(8, max(2, varying // 12))
    return list(range(2, most + 1)) if varying > 2 else [1]


def choose(stability: dict[Option, float], lopsided: dict[Option, bool]) -> Option:
    """Choose linkage and number of clusters, the finest partition about as stable as the most stable one.

    >>> stability = {("average", 2): 1.0, ("average", 3): 0.98, ("average", 4): 0.7, ("smoothed", 2): 1.0}
    >>> choose(stability, dict.fromkeys(stability, False))
    ('average', 3)
    """
    allowed = [option for option in stability if not lopsided[option]] or list(stability)
    best: dict[Linkage, float] = {}
    for option in allowed:
        best[option[0]] = max(best.get(option[0], -math.inf), stability[option])
    top = max(best.values())
    # a linkage must be clearly more stable than one that is listed before it
    linkage = next(one for one, value in best.items() if value >= top - 0.05)
    mine = {count: stability[one, count] for one, count in allowed if one == linkage}
    count = max(mine, key=mine.__getitem__)
    # Not any finer one: far beyond the actual structure, the stability of many small clusters rises again. Of nearly
    # equal stabilities that of the finer partition, since two clusters are easily stable.
    while mine.get(count + 1, -math.inf) >= best[linkage] - 0.03:
        count += 1
    return linkage, count


def content_order(images: Tensor) -> Tensor:
    """Return an order [N] of images that depends only on their content."""
    return by_content([fingerprint(image) for image in images.cpu()])


def by_content(prints: Sequence[str]) -> Tensor:
    """Return the order of images by their fingerprints."""
    return torch.tensor(sorted(range(len(prints)), key=prints.__getitem__))


def halvings(sites: Tensor, patch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Halve maps at random, 4 to 16 times, with a generator that does not depend on the user's seed."""
    generator = torch.Generator().manual_seed(0)
    half, shape = len(sites) // 2, tuple(sites.shape[1:])
    # more than 4 halvings only up to this amount of work, about 10 seconds on one core
    splits = min(16, max(4, int(3e10 / cka_work(len(sites), shape, patch_size))))
    orders = [torch.randperm(len(sites), generator=generator).to(sites.device) for _ in range(splits)]
    return ((sites[order[:half]], sites[order[half : 2 * half]]) for order in orders)


def on_a_grid(sites: Tensor, patch_size: int) -> tuple[Tensor, tuple[int, int]]:
    """Keep whole sites on a grid, at most 1024 of them; return the smaller maps and (h, w) of these sites."""
    h, w = (size // patch_size for size in sites.shape[2:])
    step = _step((h, w))
    parts = sites.unflatten(3, (w, patch_size)).unflatten(2, (h, patch_size))[:, :, ::step, :, ::step]
    return parts.flatten(4, 5).flatten(2, 3), (parts.shape[2], parts.shape[4])


def is_lopsided(partition: PixelPartition) -> bool:
    """Return True if a region has more than 80 % or less than 2 % of the varying sites."""
    sizes = partition.sizes()[1:]
    if partition.num_clusters < 2:
        return False
    return max(sizes) > 0.8 * sum(sizes) or min(sizes) < 0.02 * sum(sizes)


def region_notes(partition: PixelPartition, stability: Mapping[str, float]) -> tuple[str, ...]:
    """Return notes if a region is nearly everything or nothing, or if other images would give other regions."""
    wrong, sizes = [], partition.sizes()[1:]
    if is_lopsided(partition):
        wrong.append(
            f"the regions are lopsided: the largest holds {max(sizes)} of {sum(sizes)} varying sites, the smallest "
            f"{min(sizes)}, so the name of one says little about where it is"
        )
    fair = 0.7
    if stability["overall"] < fair:
        wrong.append(
            f"the regions are unstable: two halves of the images agree on them only to {stability['overall']:.2f} "
            f"(adjusted Rand index: 1 is identical, 0 is chance, {fair} is fair)"
        )
    remedy = "Try another `n_clusters`, more images, or a partition (PixelPartition.from_mask, PixelPartition.grid)"
    return (f"{'; and '.join(wrong)}. {remedy}",) if wrong else ()


def patch_notes(partition: PixelPartition, given: object) -> tuple[str, ...]:
    """Return a note on the side of a site if it was chosen automatically."""
    side = partition.patch_size
    if given is not None or side == 1:
        return ()
    return (f"a site of these images is a patch of {side}×{side} pixels; `patch_size` gives others",)


def _step(shape: tuple[int, int]) -> int:
    return math.ceil(math.sqrt(shape[0] * shape[1] / MAX_SITES))


class Half:
    """The clusterings of one half of the images.

    Args:
        matrix: CKA matrix of the half [d, d].
        shape: Height h and width w of the sites.
        linkages: Linkages to cluster by.
    """

    def __init__(self, matrix: Tensor, shape: tuple[int, int], linkages: Sequence[Linkage]) -> None:
        self.varying = matrix.diagonal() != 0
        self._n = int(self.varying.sum())
        self._trees = {x: merge_tree(site_points(matrix, shape, x), x) for x in linkages if self._n > 1}

    def labels(self, linkage: Linkage, count: int) -> Tensor:
        """Return the labels of all sites [d], 0 for constant ones."""
        out = self.varying.long()
        if self._n > 1:
            out[self.varying] = cut_tree(self._trees[linkage], min(count, self._n))
        return out


class Agreement:
    """Agreement of clusterings of halves of the images, on the sites that vary in all of them.

    Args:
        pairs: Two halves of each halving.
    """

    def __init__(self, pairs: Sequence[tuple[Half, Half]]) -> None:
        self._halves = [half for pair in pairs for half in pair]
        self._varying = torch.stack([half.varying for half in self._halves]).all(0)

    def _labels(self, linkage: Linkage, count: int) -> list[Tensor]:
        """Return the labels of the sites that vary in every half, for each half; the two of a halving are adjacent."""
        return [half.labels(linkage, count)[self._varying] for half in self._halves]

    def mean_index(self, linkage: Linkage, count: int) -> float:
        """Return the mean adjusted Rand index over the halvings; 0 if no site varies in every half."""
        if not self._varying.any():
            return 0.0
        labels = self._labels(linkage, count)
        return fmean(map(adjusted_rand_index, labels[::2], labels[1::2]))

    def mean_overlaps(self, linkage: Linkage, count: int, labels: Tensor) -> dict[str, float]:
        """Return the mean overlap of each cluster of the sites [h, w] with a cluster of a half, see `FoundClusters`.

        It is 0 for a cluster without a site that varies in every half.
        """
        inside, names = labels.flatten()[self._varying], {f"cluster_{x}": x for x in labels.unique().tolist() if x}
        if not len(inside):
            return dict.fromkeys(names, 0.0)
        overlaps = [best_overlaps(inside, others) for others in self._labels(linkage, count)]
        return {name: fmean(found.get(label, 0.0) for found in overlaps) for name, label in names.items()}
