# SPDX-License-Identifier: Apache-2.0
"""How well clusterings of two halves of the same images agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from genmonitor.linalg.clustering import (
    Linkage,
    adjusted_rand_index,
    best_overlaps,
    cut_tree,
    merge_tree,
    site_points,
)


@dataclass(frozen=True)
class Stability:
    """How well regions found in one half of the images are those found in the other.

    Attributes:
        overall: adjusted Rand index of the two, the mean over several random halvings; 1 where they are the same and
            around 0 where they agree by chance.
        regions: per cluster, by its label, the mean Jaccard overlap, in [0, 1], with the cluster of a half that
            overlaps it most.
    """

    overall: float
    regions: dict[int, float]

    def by_name(self) -> dict[str, float]:
        """Return both by their names, such as "overall" and "cluster_1"."""
        return {"overall": self.overall} | {f"cluster_{label}": value for label, value in self.regions.items()}

    @classmethod
    def from_names(cls, values: Mapping[str, float]) -> Stability | None:
        """Make it from what `by_name` returned, None from nothing."""
        if "overall" not in values:
            return None
        names = {name: value for name, value in values.items() if name != "overall"}
        return cls(values["overall"], {int(name.removeprefix("cluster_")): value for name, value in names.items()})


class Half:
    """The clusterings of one half of the images.

    Args:
        matrix: its CKA [d, d].
        shape: (h, w) of the sites.
        linkages: to cluster by.
    """

    def __init__(self, matrix: Tensor, shape: tuple[int, int], linkages: Sequence[Linkage]) -> None:
        self.varying = matrix.diagonal() != 0
        self._n = int(self.varying.sum())
        self._trees = {x: merge_tree(site_points(matrix, shape, x), x) for x in linkages if self._n > 1}

    def labels(self, linkage: Linkage, count: int) -> Tensor:
        """Return the labels of all sites [d], 0 for those that do not vary."""
        out = self.varying.long()
        if self._n > 1:
            out[self.varying] = cut_tree(self._trees[linkage], min(count, self._n))
        return out


class Agreement:
    """How well clusterings of halves of the images agree, on the sites that vary in each of them.

    Args:
        pairs: the two halves of each halving.
    """

    def __init__(self, pairs: Sequence[tuple[Half, Half]]) -> None:
        self._pairs = pairs
        self._varying = torch.stack([half.varying for pair in pairs for half in pair]).all(0)

    def mean_index(self, linkage: Linkage, count: int) -> float:
        """Return the mean adjusted Rand index over the halvings; 0 where no site varies in every half."""
        if not self._varying.any():
            return 0.0
        return fmean(
            adjusted_rand_index(*(half.labels(linkage, count)[self._varying] for half in pair)) for pair in self._pairs
        )

    def mean_overlaps(self, linkage: Linkage, count: int, labels: Tensor) -> dict[int, float]:
        """Return for each label of the sites [h, w] its mean overlap with a half's cluster, see `Stability`.

        It is 0 for a label without a site that varies in every half.
        """
        inside, names = labels.flatten()[self._varying], [int(label) for label in labels.unique() if label]
        if not len(inside):
            return dict.fromkeys(names, 0.0)
        overlaps = [
            best_overlaps(inside, half.labels(linkage, count)[self._varying]) for pair in self._pairs for half in pair
        ]
        return {label: fmean(found.get(label, 0.0) for found in overlaps) for label in names}
