# SPDX-License-Identifier: Apache-2.0
"""What PixelClusterMonitor fixes at the start of a run: kernel width, clusters and yardstick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from genmonitor import CosineMeanSimilarity, PixelPartition
from genmonitor.callbacks.roles import RealImages
from genmonitor.callbacks.yardstick import Band, measure_yardstick
from genmonitor.functional.cka import CLUSTER_TOLERANCE, pixel_cka
from genmonitor.functional.cms import cms_from_means
from genmonitor.functional.mmd import mmd_from_means
from genmonitor.kernels import Kernel
from genmonitor.kernels.means import KernelMeans


@dataclass(frozen=True)
class Found:
    """What was found in the training images, all on the CPU."""

    partition: PixelPartition
    kernel: Kernel
    yardstick: dict[str, Band]
    value_range: tuple[float, float]
    cka: Tensor | None
    average: Tensor


class RegionMetric(CosineMeanSimilarity):
    """CMS of image and regions, and the image's unbiased MMD, from one pass over the distances."""

    def _value(self, means: KernelMeans) -> dict[str, Tensor]:
        values = cms_from_means(means, self.partition)
        assert isinstance(values, dict)
        return values | {"mmd": mmd_from_means(means.without_diagonal())}


def find_regions(
    roles: RealImages,
    sites_of: Callable[[Tensor], Tensor],
    kernel: Kernel,
    partition: PixelPartition | None,
    n_clusters: int | None,
    patch_size: int,
    block_size: int | None,
    n_samples: int,
    seed: int,
    progress: Callable[[Any, str], Iterator[Any]],
) -> Found:
    """Take kernel width, clusters and yardstick from training images.

    Args:
        roles: which images serve for what.
        sites_of: from images to the maps whose sites are clustered, on the device to compute on.
        kernel: its gamma is taken from the images where it is None.
        partition: the user's, or None to cluster.
        n_clusters: None to choose.
        patch_size: side of a site.
        block_size: of the estimator.
        n_samples: images in a draw of the yardstick.
        seed: of the draws.
        progress: wraps what is gone over, by what is being done.
    """
    images = roles.training.read(roles.for_clusters)
    sites = sites_of(images)
    kernel = kernel.resolved(sites.flatten(1))
    cka = None
    if partition is None:
        for _ in progress(range(1), "clusters"):
            cka = pixel_cka(sites, kernel=kernel, patch_size=patch_size, tolerance=CLUSTER_TOLERANCE).cpu()
        assert cka is not None
        h, w = (size // patch_size for size in sites.shape[2:])
        partition = PixelPartition.from_cka(cka, (h, w), n_clusters, patch_size)
    metric = RegionMetric(partition, kernel, block_size, reset_real_features=False, sync_on_compute=False)
    metric.to(sites.device).update(sites_of(roles.compared.read(roles.for_comparison)), real=True)
    names = ("image", "product", *partition.regions(), "mmd")

    def measure(draw: Tensor) -> dict[str, float]:
        metric.reset()
        metric.update(sites_of(draw), real=False)
        values: Any = metric.compute()
        return {name: float(values[name]) for name in names}

    def draws(over: Any) -> Iterator[Any]:
        return progress(over, "yardstick")

    yardstick = measure_yardstick(measure, roles.training.read, roles.for_yardstick, n_samples, seed, draws)
    value_range = (float(images.min()), float(images.max()))
    return Found(partition, kernel, yardstick, value_range, cka, images.mean(0))
