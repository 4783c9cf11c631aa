# SPDX-License-Identifier: Apache-2.0
"""What others say of the same images: FID, KID, PRDC on principal components, and Kolmogorov-Smirnov pixel by pixel."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import false_discovery_control, ks_2samp
from torch import Tensor

from genmonitor import PixelPartition
from genmonitor.encoders import FeatureMetrics
from genmonitor.findings.finding import LEVEL
from genmonitor.functional import two_sample_test

COMPONENTS = 64


class Components:
    """Turns images into the principal components of real ones, at most 64 of them."""

    def __init__(self, real: Tensor) -> None:
        flat = real.flatten(1)
        self.mean = flat.mean(0)
        count = min(COMPONENTS, flat.shape[1], len(flat) - 1)
        self.directions = torch.linalg.svd(flat - self.mean, full_matrices=False).Vh[:count].T

    def __call__(self, images: Tensor) -> Tensor:
        """Return features [n, components]."""
        return (images.flatten(1) - self.mean) @ self.directions


def fidelity(fake: Tensor, real: Tensor) -> dict[str, float]:
    """Return FID, KID, precision, recall, density and coverage."""
    encoder = Components(real)
    metric = FeatureMetrics(encoder, ["fid", "kid", "prdc"], num_features=encoder.directions.shape[1])
    metric.update(real, real=True)
    metric.update(fake, real=False)
    with torch.random.fork_rng():  # KID draws subsets
        torch.manual_seed(0)
        return {name: float(value) for name, value in metric.compute().items()}


def pixel_p_values(fake: Tensor, real: Tensor) -> np.ndarray:
    """Return Kolmogorov-Smirnov's p-value for each pixel [h, w]: the smallest of its channels times their number."""
    p = np.asarray(ks_2samp(fake.flatten(1).numpy(), real.flatten(1).numpy(), axis=0, method="asymp").pvalue)
    return np.minimum(1, p.reshape(fake.shape[1:]).min(0) * fake.shape[1])


def holm(p: np.ndarray) -> np.ndarray:
    """Return which p-values are rejected at 5 % with familywise control."""
    ordered = np.sort(p, axis=None)
    kept = ordered > LEVEL / np.arange(p.size, 0, -1)
    return p < (ordered[kept.argmax()] if kept.any() else np.inf)


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Return which p-values are rejected at a false discovery rate of 5 %."""
    return false_discovery_control(p.ravel()).reshape(p.shape) <= LEVEL


def worst_cluster(fake: Tensor, real: Tensor, partition: PixelPartition) -> np.ndarray:
    """Return the pixels of the cluster of the smallest p-value, none if that is above 5 %."""
    found = two_sample_test(fake, real, partition=partition)
    p = {name: float(found[name]) for name in partition.regions()}
    worst = min(p, key=lambda name: p[name])
    return (partition.pixel_labels() == partition.regions()[worst]).numpy() & (p[worst] <= LEVEL + 1e-9)
