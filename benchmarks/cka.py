# SPDX-License-Identifier: Apache-2.0
"""CKA between all pairs of pixels: the pairwise loop, the mini-batch product and the ways of this package.

python benchmarks/cka.py
python benchmarks/cka.py --long                       # 256×256×3 in patches as well: a few minutes and 4 GiB
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from harness import DEVICE, clock, row, run, seconds
from torch import Tensor
from torch.nn.functional import interpolate

from genmonitor import GaussianKernel, PixelCKA, PixelPartition
from genmonitor.functional import cka as levels
from genmonitor.functional import pixel_cka
from genmonitor.functional.cka import CLUSTER_TOLERANCE, site_values

NOTES = (
    "Clusters: with the tolerance of 0.02 that monitors ask for, and the clustering; the other cases have every entry "
    "within 1e-6. For 28×28×1 we had aimed at half of torch.mm's rate: three products are left, too little work to "
    "cover the features and their axes, and the heaviest of the three is in float64."
)


EXTRAPOLATED = "extrapolated from a few pairs"


@functools.cache
def images(n: int, channels: int, size: int) -> Tensor:
    """Draw smooth random fields with correlated channels and some noise, through a tanh: in [-1, 1]."""
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(6, channels, generator=generator) / 2
    out = torch.empty(n, channels, size, size)
    for some in out.split(100):
        coarse = torch.einsum("nkhw,kc->nchw", torch.randn(len(some), 6, 8, 8, generator=generator), mixing)
        some.copy_(interpolate(coarse, size=size, mode="bicubic"))
        some.add_(torch.randn(some.shape, generator=generator), alpha=0.1).tanh_()
    return out.to(DEVICE)


def kernel_of(x: Tensor) -> Any:
    return GaussianKernel().resolved(x.flatten(1))


def pairwise(values: Tensor, gamma: float, pairs: list[tuple[int, int]]) -> Tensor:
    """Compute tr(K H L H) pair by pair in float64, as the formula is written, from site values [d, V, N]."""
    n = values.shape[2]
    centering = torch.eye(n, dtype=torch.float64, device=values.device) - 1 / n

    def centered_gram(site: int) -> Tensor:
        v = values[site].T.double()
        return (
            centering
            @ torch.exp(-gamma * torch.cdist(v, v, compute_mode="donot_use_mm_for_euclid_dist") ** 2)
            @ centering
        )

    def cka(i: int, j: int) -> Tensor:
        k, m = centered_gram(i), centered_gram(j)
        return (k * m).sum() / ((k * k).sum() * (m * m).sum()).sqrt()

    return torch.stack([cka(i, j) for i, j in pairs])


def loop(x: Tensor, patch: int = 1, count: int = 6) -> tuple[float, Tensor, list[tuple[int, int]]]:
    """Time the loop on some pairs and extrapolate to the d (d + 1) / 2 that there are."""
    values, gamma = site_values(x, patch), kernel_of(x).gamma
    d = len(values)
    generator = torch.Generator().manual_seed(1)
    pairs = [(int(i), int(j)) for i, j in torch.randint(d, (count, 2), generator=generator)]
    pairwise(values, gamma, pairs[:1])
    start = clock()
    exact = pairwise(values, gamma, pairs)
    return (clock() - start) / count * d * (d + 1) / 2, exact, pairs


def worst(matrix: Tensor, exact: Tensor, pairs: list[tuple[int, int]]) -> float:
    return float((torch.stack([matrix[i, j] for i, j in pairs]) - exact).abs().max())


def columns(x: Tensor, took: float, peer: float, error: float, operations: float, patch: int = 1) -> dict[str, Any]:
    d = x[0, 0].numel() // patch**2
    moved = x.numel() * x.element_size() + 8 * d * d
    size = f"{d} sites × {x.shape[1] * patch**2}"
    peers, said = {"pairwise loop": peer}, {"pairwise loop": EXTRAPOLATED}
    return row(
        f"{len(x):,}", size, took, operations=operations, moved=moved, error=error, peers=peers, extrapolated=said
    )


def levels_case(
    n: int, channels: int, size: int, patch: int = 1, tolerance: float = 1e-6, cluster: bool = False
) -> dict[str, Any]:
    x = images(n, channels, size)
    side = size // patch
    peer, exact, pairs = loop(x, patch)
    kernel = kernel_of(x)

    def work() -> Tensor:
        found = pixel_cka(x, kernel=kernel, patch_size=patch, tolerance=tolerance)
        if cluster:
            PixelPartition.from_cka(found, (side, side), 5)
        return found

    error = worst(work(), exact, pairs)
    return columns(x, seconds(work), peer, error, level_operations(x, kernel, patch, tolerance), patch)


def level_operations(x: Tensor, kernel: Any, patch: int, tolerance: float) -> float:
    values = site_values(x, patch)
    shifted = values - values.mean(2, keepdim=True)
    degree = levels.choose_degree(shifted, kernel.gamma, tolerance / 4)
    spectrum, _ = levels._principal_axes(shifted, kernel.gamma, degree, 1)
    weights = spectrum.amax(0)[: levels.needed_levels(spectrum, tolerance / 4)]
    return len(levels.level_pairs(weights, tolerance / 4)) * len(values) ** 2 * len(x)


def full_batch_28x28x1() -> dict[str, Any]:
    return levels_case(1000, 1, 28)


def full_batch_64x64x3() -> dict[str, Any]:
    return levels_case(1000, 3, 64)


def full_batch_64x64x3_with_clustering() -> dict[str, Any]:
    return levels_case(1000, 3, 64, cluster=True)


def clusters_of_64x64x3() -> dict[str, Any]:
    return levels_case(1000, 3, 64, tolerance=CLUSTER_TOLERANCE, cluster=True)


def clusters_of_256x256x3_in_4x4_patches() -> dict[str, Any]:
    return levels_case(1000, 3, 256, patch=4, tolerance=CLUSTER_TOLERANCE, cluster=True)


def full_batch_256x256x3_in_4x4_patches_with_clustering() -> dict[str, Any]:
    x, d = images(1000, 3, 256), 4096
    peer, exact, pairs = loop(x, patch=4)
    kernel = kernel_of(x)
    start = clock()
    matrix = pixel_cka(x, kernel=kernel, patch_size=4)
    PixelPartition.from_cka(matrix, (64, 64), 5)
    took = clock() - start
    return columns(x, took, peer, worst(matrix, exact, pairs), d * d * len(x) * (len(x) + 1) / 2, patch=4)


def mini_batches_of_100_28x28x1() -> dict[str, Any]:
    x, d, m = images(1000, 1, 28), 784, 100
    peer, _, pairs = loop(x[:m], count=60)
    kernel = kernel_of(x)
    took = seconds(lambda: pixel_cka(x, kernel=kernel, batch_estimator=m))
    values = site_values(x, 1)
    exact = [pairwise(values[:, :, start : start + m], kernel.gamma, pairs) for start in range(0, 1000, m)]
    error = worst(pixel_cka(x, kernel=kernel, batch_estimator=m), torch.stack(exact).mean(0), pairs)
    return columns(x, took, 10 * peer, error, 10 * m * (m + 1) / 2 * d * d)


def in_batches_28x28x1() -> dict[str, Any]:
    """Time 100,000 images in batches, the same 1000 over and over, which have the CKA of these 1000."""
    n, x = 100_000, images(1000, 1, 28)
    metric = PixelCKA(kernel=kernel_of(x))
    start = clock()
    for batch in range(n // 1000):
        metric.update(x.roll(batch, dims=0))
    matrix = metric.compute()
    took = clock() - start
    peer, exact, pairs = loop(x)
    features = 784 * 4  # of degree 3
    error = worst(matrix, exact, pairs)
    return columns(x, took, peer * (n / 1000) ** 2, error, n * features**2) | {"n": f"{n:,}"}


if __name__ == "__main__":
    cases = [
        full_batch_28x28x1,
        full_batch_64x64x3,
        full_batch_64x64x3_with_clustering,
        clusters_of_64x64x3,
        mini_batches_of_100_28x28x1,
        in_batches_28x28x1,
    ]
    long = [clusters_of_256x256x3_in_4x4_patches, full_batch_256x256x3_in_4x4_patches_with_clustering]
    run(__file__, cases, "CKA between all pairs of pixels", long, notes=NOTES)
