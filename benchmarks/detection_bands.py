# SPDX-License-Identifier: Apache-2.0
"""How often real images leave the bands of `detection.py`, and what own widths make of the image's CMS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import numpy as np
import torch
from detection_images import Source
from detection_methods import Values, one_width

from genmonitor import GaussianKernel
from genmonitor.evaluation.baseline import simultaneous_bands
from genmonitor.evaluation.regions.clustering import find_clusters
from genmonitor.evaluation.regions.finder import own_gammas
from genmonitor.evaluation.regions.metrics import RegionMetric


def band_rows(sets: Mapping[str, Source], count: int) -> Iterator[list[str]]:
    """Yield, for each set, how often some region of real images is below its band of 20 draws of others."""
    for name, source in sets.items():
        generator = torch.Generator().manual_seed(1)
        values = [one_width(*source.draw(generator), source.partition) for _ in range(count)]
        left, by_quantile = bands_left(values)
        yield [name, str(count), f"{left:.3f}", f"{by_quantile:.3f}"]


def bands_left(values: list[Values]) -> tuple[float, float]:
    """Return how often some region is below its band of 20 draws: the simultaneous one, and its own 5 % quantile."""
    left, by_quantile, generator = [], [], np.random.default_rng(0)
    for _ in range(1000):
        *draws, new = (values[i] for i in generator.choice(len(values), 21, replace=False))
        by_region = {name: [draw[name] for draw in draws] for name in new}
        bands = simultaneous_bands(by_region, list(by_region), list(by_region))
        left.append(any(new[name] < bands[name][0] - 1e-9 for name in new))
        by_quantile.append(any(new[name] < np.quantile(v, 0.05) - 1e-9 for name, v in by_region.items()))
    return float(np.mean(left)), float(np.mean(by_quantile))


def width_rows(source: Source, draws: int) -> Iterator[list[str]]:
    """Yield what real images score in image and regions, with one width for all and with one for each region."""
    kernel = GaussianKernel().resolved(source.images.flatten(1))
    for count in (2, 5, 10):
        partition = find_clusters(source.images, kernel, count, 1).partition
        generator = torch.Generator().manual_seed(3)
        pairs = [source.draw(generator) for _ in range(draws)]
        cells: dict[str, list[float]] = {"image": [], "region": []}
        for gammas in ({}, own_gammas(source.images, partition)):
            found = [score(RegionMetric(partition, kernel, None, gammas), *pair) for pair in pairs]
            cells["image"].append(median(values["image"] for values in found))
            cells["region"].append(
                median(v for values in found for name, v in values.items() if name.startswith("cluster_"))
            )
        yield [str(count), *(f"{x:.4f}" for x in (*cells["image"], *cells["region"]))]


def score(metric: RegionMetric, fake: torch.Tensor, real: torch.Tensor) -> Values:
    """Return the values of one draw."""
    metric.update(real, real=True)
    metric.update(fake, real=False)
    values: Any = metric.compute()
    return {name: float(value) for name, value in values.items()}
