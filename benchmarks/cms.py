# SPDX-License-Identifier: Apache-2.0
"""CMS of an image and its clusters in one pass, against a plain image-wise computation and a kernel per cluster.

python benchmarks/cms.py
python benchmarks/cms.py --long                       # 10,000 against 10,000 as well: minutes without a GPU
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from harness import DEVICE, row, run, side_by_side
from sklearn.metrics.pairwise import rbf_kernel
from torch import Tensor

from genmonitor import CosineMeanSimilarity, GaussianKernel, PixelPartition
from genmonitor.functional import cosine_mean_similarity

N, CHANNELS, SIZE, CLUSTERS = 1200, 3, 64, 5
NOTES = (
    "With clusters, six values take about as long as one by its formula, whose products of a side with itself ours "
    "computes by halves. Products are 55 % of the time, passes over the images the rest: sorting pixels by cluster, "
    "centering them, norms. `gather` and `index_select` sort them no faster than an index."
)


def inputs(n: int = N) -> tuple[Tensor, Tensor, PixelPartition, Any]:
    generator = torch.Generator().manual_seed(0)
    fake, real = (torch.rand(n, CHANNELS, SIZE, SIZE, generator=generator).to(DEVICE) for _ in range(2))
    partition = PixelPartition.from_mask(torch.randint(CLUSTERS, (SIZE, SIZE), generator=generator))
    return fake, real, partition, GaussianKernel().resolved(real.flatten(1))


def plain(x: Tensor, y: Tensor, gamma: float) -> Tensor:
    """Compute the image's CMS as the formula is written, three full products."""

    def mean_kernel(a: Tensor, b: Tensor) -> Tensor:
        distances = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T
        return torch.exp(-gamma * distances).mean()

    return mean_kernel(x, y) / (mean_kernel(x, x) * mean_kernel(y, y)).sqrt()


def per_cluster(x: Tensor, y: Tensor, columns: list[Tensor], gamma: float) -> list[float]:
    """Compute every cluster and the image with scikit-learn's kernel, one after the other."""
    values = []
    for part in [torch.arange(x.shape[1]), *columns]:
        a, b = x[:, part].cpu().numpy(), y[:, part].cpu().numpy()
        across, within = rbf_kernel(a, b, gamma).mean(), rbf_kernel(a, a, gamma).mean() * rbf_kernel(b, b, gamma).mean()
        values.append(float(across / within**0.5))
    return values


def compared(work: Callable[[], Any]) -> dict[str, Any]:
    fake, real, partition, kernel = inputs()
    x, y = fake.flatten(1), real.flatten(1)
    columns = [partition.columns(label, CHANNELS) for label in range(1, CLUSTERS + 1)]
    ours = cosine_mean_similarity(fake.double(), real.double(), kernel=kernel, partition=partition)
    single = cosine_mean_similarity(fake, real, kernel=kernel, partition=partition)
    error = max(abs(float(single[name] - ours[name])) for name in partition.regions())
    took, by_formula, by_cluster = side_by_side(
        work, lambda: plain(x, y, kernel.gamma), lambda: per_cluster(x, y, columns, kernel.gamma)
    )
    return columns_of(x, took, error, {"plain image-wise": by_formula, "scikit-learn per cluster": by_cluster})


def columns_of(x: Tensor, took: float, error: float, peers: dict[str, float]) -> dict[str, Any]:
    n, d = x.shape
    operations, moved = 2 * 2 * n * n * d, 2 * x.numel() * x.element_size()
    size = f"{SIZE}×{SIZE}×{CHANNELS}"
    return row(f"{n} v {n}", size, took, operations=operations, moved=moved, error=error, peers=peers)


def image_alone() -> dict[str, Any]:
    fake, real, _, kernel = inputs()
    return compared(lambda: cosine_mean_similarity(fake, real, kernel=kernel))


def image_and_5_clusters() -> dict[str, Any]:
    fake, real, partition, kernel = inputs()
    return compared(lambda: cosine_mean_similarity(fake, real, kernel=kernel, partition=partition))


def image_and_5_clusters_of_10000() -> dict[str, Any]:
    """Beside the plain way alone, which is also what the image's value is compared with."""
    fake, real, partition, kernel = inputs(10_000)
    x, y = fake.flatten(1), real.flatten(1)

    def work() -> dict[str, Tensor]:
        return cosine_mean_similarity(fake, real, kernel=kernel, partition=partition)

    error = abs(float(work()["image"]) - float(plain(x, y, kernel.gamma)))
    took, by_formula = side_by_side(work, lambda: plain(x, y, kernel.gamma), repeats=1)
    return columns_of(x, took, error, {"plain image-wise": by_formula})


def an_evaluation_with_the_real_side_cached() -> dict[str, Any]:
    fake, real, partition, kernel = inputs()
    metric = CosineMeanSimilarity(partition, kernel, reset_real_features=False).to(DEVICE)
    metric.update(real, real=True)

    def evaluate() -> None:
        metric.reset()
        metric.update(fake, real=False)
        metric.compute()

    return compared(evaluate)


if __name__ == "__main__":
    run(
        __file__,
        [image_alone, image_and_5_clusters, an_evaluation_with_the_real_side_cached],
        "CMS of an image and its clusters",
        [image_and_5_clusters_of_10000],
        notes=NOTES,
    )
