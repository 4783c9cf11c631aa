# SPDX-License-Identifier: Apache-2.0
"""What `detection.py` compares: faults that are planted in a region, and methods that look for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import binom, ks_2samp
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import avg_pool2d

from genmonitor import GaussianKernel, PixelPartition
from genmonitor.functional import cosine_mean_similarity, two_sample_test
from genmonitor.kernels.views import Structure

Values = dict[str, float]

# faults: images and a mask of the pixels -> images


def noise(x: Tensor, inside: Tensor, size: float) -> Tensor:
    """Add Gaussian noise whose standard deviation is so much of the range."""
    return x + size * inside * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))


def blur(x: Tensor, inside: Tensor, size: float) -> Tensor:
    """Mix in so much of a 3×3 blur."""
    soft = avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    return torch.where(inside, (1 - size) * x + size * soft, x)


def contrast(x: Tensor, inside: Tensor, size: float) -> Tensor:
    """Take so much of the contrast away."""
    mean = x.mean(0)
    return torch.where(inside, mean + (1 - size) * (x - mean), x)


def brightness(x: Tensor, inside: Tensor, size: float) -> Tensor:
    """Make the region brighter by so much of the range."""
    return x + size * inside


def blank(x: Tensor, inside: Tensor, size: float) -> Tensor:
    """Blank the region in so many of the images."""
    out = x.clone()
    some = slice(0, round(size * len(x)))
    out[some] = torch.where(inside, x[some].min(), x[some])
    return out


FAULTS: dict[str, tuple[Callable[[Tensor, Tensor, float], Tensor], tuple[float, float, float]]] = {
    "noise σ": (noise, (0.05, 0.1, 0.2)),
    "blur": (blur, (0.25, 0.5, 1.0)),
    "contrast −": (contrast, (0.1, 0.2, 0.3)),
    "brightness +": (brightness, (0.02, 0.05, 0.1)),
    "blank in": (blank, (0.05, 0.1, 0.2)),
}


# methods: what each says of generated and real images, low for what is suspect


def permutation_test(fake: Tensor, real: Tensor, partition: PixelPartition) -> Values:
    """p-values of the test, and of the image."""
    found = two_sample_test(fake, real, partition=partition)
    # p-values at their floor tie; the region whose CMS fell most is named then
    cms = own_width(fake, real, partition)
    return {name: float(p) + (0 if name == "image" else 1e-6 * cms[name]) for name, p in found.items()}


def one_width(fake: Tensor, real: Tensor, partition: PixelPartition) -> Values:
    """CMS per cluster by the paper's one width."""
    found = cosine_mean_similarity(fake, real, partition=partition)
    return {name: float(found[name]) for name in partition.regions()}


def own_width(fake: Tensor, real: Tensor, partition: PixelPartition) -> Values:
    """CMS per cluster, each with 4 over its own mean squared distance."""
    out = {}
    for name, columns in zip(partition.regions(), Structure.of(real, partition).columns, strict=True):
        x, y = fake.flatten(1)[:, columns], real.flatten(1)[:, columns]
        scale = 2 * float(y.double().var(0).sum())
        same = bool((x == y[0]).all())
        out[name] = 1.0 if same else float(cosine_mean_similarity(x, y, kernel=GaussianKernel(4 / max(scale, 1e-6))))
    return out


def kolmogorov_smirnov(fake: Tensor, real: Tensor, partition: PixelPartition) -> Values:
    """The smallest p-value of a pixel in each region, with Bonferroni's factor for all pixels."""
    p = np.asarray(ks_2samp(fake.flatten(1).numpy(), real.flatten(1).numpy(), axis=0, method="asymp").pvalue)
    regions = zip(partition.regions(), Structure.of(real, partition).columns, strict=True)
    return {name: min(1.0, float(p[columns.numpy()].min()) * len(p)) for name, columns in regions}


def classifier(fake: Tensor, real: Tensor, partition: PixelPartition) -> Values:
    """p-value of the accuracy, on one half, of a logistic regression fitted to the other."""
    x, y = torch.cat([fake, real]).flatten(1).numpy(), np.repeat([1, 0], [len(fake), len(real)])
    order = np.random.default_rng(0).permutation(len(x))
    train, test = np.array_split(order, 2)
    right = int((LogisticRegression(max_iter=200).fit(x[train], y[train]).predict(x[test]) == y[test]).sum())
    return {"image": float(binom.sf(right - 1, len(test), 0.5))}


P_VALUES = {"test": permutation_test, "KS": kolmogorov_smirnov, "classifier": classifier}
SIMILARITIES = {"CMS, one width": one_width, "CMS, own widths": own_width}


def measured(fake: Tensor, real: Tensor, partition: PixelPartition) -> dict[str, Values]:
    """Return what every method says."""
    return {name: method(fake, real, partition) for name, method in (P_VALUES | SIMILARITIES).items()}
