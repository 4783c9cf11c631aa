# SPDX-License-Identifier: Apache-2.0
"""CKA between all pairs of pixels: the pairwise loop, the mini-batch product and the ways of this package.

python benchmarks/cka.py
"""

from __future__ import annotations

import functools
import time
from typing import Any

import torch
from harness import product_rate, run, seconds
from torch import Tensor
from torch.nn.functional import interpolate

from genmonitor import GaussianKernel, PixelCKA, PixelPartition
from genmonitor.functional import pixel_cka
from genmonitor.functional import taylor_cka as levels
from genmonitor.functional.cka import site_values
from genmonitor.functional.level_products import level_pairs


@functools.cache
def images(n: int, channels: int, size: int) -> Tensor:
    """Draw smooth random fields with correlated channels and some noise, through a tanh: in [-1, 1]."""
    generator = torch.Generator().manual_seed(0)
    coarse = interpolate(torch.randn(n, 6, 8, 8, generator=generator), size=size, mode="bicubic")
    mixed = torch.einsum("nkhw,kc->nchw", coarse, torch.randn(6, channels, generator=generator) / 2)
    return torch.tanh(mixed + 0.1 * torch.randn(n, channels, size, size, generator=generator))


def kernel_of(x: Tensor) -> Any:
    return GaussianKernel().resolved(x.flatten(1))


def pairwise(x: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    """Compute tr(K H L H) pair by pair in float64, as the formula is written."""
    values, gamma = site_values(x.double(), 1), kernel_of(x).gamma
    n = len(x)
    centring = torch.eye(n, dtype=torch.float64) - 1 / n

    def centred_gram(site: int) -> Tensor:
        v = values[site].T
        return (
            centring
            @ torch.exp(-gamma * torch.cdist(v, v, compute_mode="donot_use_mm_for_euclid_dist") ** 2)
            @ centring
        )

    def cka(i: int, j: int) -> Tensor:
        k, m = centred_gram(i), centred_gram(j)
        return (k * m).sum() / ((k * k).sum() * (m * m).sum()).sqrt()

    return torch.stack([cka(i, j) for i, j in pairs])


def sample_pairs(d: int, count: int) -> list[tuple[int, int]]:
    generator = torch.Generator().manual_seed(1)
    return [(int(i), int(j)) for i, j in torch.randint(d, (count, 2), generator=generator)]


def row(n: int, d: int, took: float, extrapolated: float, error: float, rate: float) -> dict[str, Any]:
    return {
        "n": f"{n:,}",
        "sites": d,
        "seconds": f"{took:.3g}",
        "× pairwise loop": f"{extrapolated / took:,.0f}",
        "largest error": f"{error:.0e}",
        "share of torch.mm": f"{rate / product_rate():.0%}",
    }


def loop_seconds(x: Tensor, d: int, count: int = 6) -> tuple[float, Tensor, list[tuple[int, int]]]:
    """Time the loop on some pairs and extrapolate to the d (d + 1) / 2 that there are."""
    pairs = sample_pairs(d, count)
    pairwise(x, pairs[:1])
    start = time.perf_counter()
    exact = pairwise(x, pairs)
    return (time.perf_counter() - start) / count * d * (d + 1) / 2, exact, pairs


def levels_case(n: int, channels: int, size: int, cluster: bool = False) -> dict[str, Any]:
    x, d = images(n, channels, size), size * size
    loop, exact, pairs = loop_seconds(x, d)
    kernel = kernel_of(x)
    matrix = pixel_cka(x, kernel=kernel)
    error = float((torch.stack([matrix[i, j] for i, j in pairs]) - exact).abs().max())

    def work() -> None:
        found = pixel_cka(x, kernel=kernel)
        if cluster:
            PixelPartition.from_cka(found, (size, size), 5)

    took = seconds(work)
    values = site_values(x, 1).double()
    shifted = values - values.mean(2, keepdim=True)
    degree = levels.choose_degree(shifted, kernel.gamma, 1e-6 / 3)
    _, spectrum = levels._principal_levels(shifted, kernel.gamma, degree)
    operations = len(level_pairs(spectrum, 1e-6 / 3)) * d * d * n
    return row(n, d, took, loop, error, operations / took)


def full_batch_28x28x1() -> dict[str, Any]:
    return levels_case(1000, 1, 28)


def full_batch_64x64x3() -> dict[str, Any]:
    return levels_case(1000, 3, 64)


def full_batch_64x64x3_with_clustering() -> dict[str, Any]:
    return levels_case(1000, 3, 64, cluster=True)


def mini_batches_of_100_28x28x1() -> dict[str, Any]:
    x, d, m = images(1000, 1, 28), 784, 100
    per_batch, _, pairs = loop_seconds(x[:m], d)
    kernel = kernel_of(x)
    took = seconds(lambda: pixel_cka(x, kernel=kernel, batch_estimator=m))
    loops = [pairwise_with(kernel.gamma, x[start : start + m], pairs) for start in range(0, 1000, m)]
    matrix = pixel_cka(x, kernel=kernel, batch_estimator=m)
    error = float((torch.stack([matrix[i, j] for i, j in pairs]) - torch.stack(loops).mean(0)).abs().max())
    return row(1000, d, took, 10 * per_batch, error, 10 * (m * (m + 1) / 2) * d * d / took)


def streamed_28x28x1() -> dict[str, Any]:
    n, d = 100_000, 784
    x = images(1000, 1, 28)
    kernel = kernel_of(x)
    metric = PixelCKA(kernel=kernel)
    start = time.perf_counter()
    for batch in range(n // 1000):
        metric.update(x.roll(batch, dims=0))
    matrix = metric.compute()
    took = time.perf_counter() - start
    loop, exact, pairs = loop_seconds(x, d)  # the same 1000 images over and over: the same values
    error = float((torch.stack([matrix[i, j] for i, j in pairs]) - exact).abs().max())
    features = metric.product_sum.shape[0]
    return row(n, d, took, loop * (n / 1000) ** 2, error, n * features**2 / took)


def pairwise_with(gamma: float, x: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    """Compute the pairs of one mini-batch with the width of the whole set."""
    values = site_values(x.double(), 1)
    n = len(x)
    centring = torch.eye(n, dtype=torch.float64) - 1 / n
    grams = [[centring @ torch.exp(-gamma * (values[s].T - values[s]) ** 2) @ centring for s in pair] for pair in pairs]
    return torch.stack([(k * m).sum() / ((k * k).sum() * (m * m).sum()).sqrt() for k, m in grams])


if __name__ == "__main__":
    cases = [
        full_batch_28x28x1,
        full_batch_64x64x3,
        full_batch_64x64x3_with_clustering,
        mini_batches_of_100_28x28x1,
        streamed_28x28x1,
    ]
    run(__file__, cases, "CKA between all pairs of pixels")
