# SPDX-License-Identifier: Apache-2.0
"""How often real images leave the bands of `detection.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from detection_images import Source
from detection_methods import Values, one_width

from genmonitor.evaluation.regions.search import simultaneous_bands


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
