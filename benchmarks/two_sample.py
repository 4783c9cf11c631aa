# SPDX-License-Identifier: Apache-2.0
"""What compares generated with real samples, against its peers.

An evaluation of regions against the functions that it stands for, PRDC against the prdc package, MMD against
torchmetrics' KID.

python benchmarks/two_sample.py
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import prdc
import torch
from harness import DEVICE, row, run, side_by_side
from sklearn.metrics.pairwise import rbf_kernel
from torch import Tensor, nn
from torchmetrics.image.kid import KernelInceptionDistance

from genmonitor import PRDC, GaussianKernel, MaximumMeanDiscrepancy, PixelPartition
from genmonitor.evaluation.regions.metrics import Compared, RealRegions
from genmonitor.evaluation.regions.search import error_views
from genmonitor.functional import (
    cosine_mean_similarity,
    maximum_mean_discrepancy,
    mmd_influence,
    two_sample_test,
)
from genmonitor.linalg.whitening import Whitening

DIM, NEIGHBORS, BATCH = 512, 5, 1000
NOTES = (
    "Regions: test with 999 permutations, influences in both views, CMS and MMD of image and 5 regions of n generated "
    "and n real images, from one pass; the real side is kept from the evaluation before. Its peer calls "
    "`two_sample_test`, `mmd_influence` of either view, `cosine_mean_similarity` and `maximum_mean_discrepancy`. d is "
    "the number of values of an image. "
    "KID draws 100 subsets of 1000, whose cost does not grow with n, while MMD compares all pairs: at 10,000 the "
    "products of these alone take about half of KID's time, and somewhat beyond 10,000 KID is the faster of the two. "
    "The Gram matrices within a side are computed by halves, in float32; their exponentials, and their sums in "
    "float64, are taken while they are in the cache."
)


def sides(n: int) -> tuple[Tensor, Tensor]:
    """Draw features of n generated and n real samples, somewhat apart."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.arange(1, DIM + 1).float().rsqrt()
    fake, real = (torch.randn(n, DIM, generator=generator) * scale for _ in range(2))
    return (0.9 * fake + 0.1).to(DEVICE), real.to(DEVICE)


def measured(metric: Any, fake: Tensor, real: Tensor) -> Any:
    """Feed a metric in batches, as a monitor does, and compute."""
    metric.to(DEVICE).reset()
    for side, is_real in ((fake, False), (real, True)):
        for batch in side.split(BATCH):
            metric.update(batch, real=is_real)
    return metric.compute()


def columns(n: int, times: list[float], names: list[str], error: float) -> dict[str, Any]:
    """Put a row together; the distances that are needed are those across, and half of those within each side."""
    took, *theirs = times
    operations, moved = 2 * 2 * n * n * DIM, 2 * 4 * n * DIM
    peers = dict(zip(names, theirs, strict=True))
    return row(f"{n:,} v {n:,}", f"{DIM}", took, operations=operations, moved=moved, error=error, peers=peers)


def regions_case(n: int, channels: int, side: int) -> Callable[[], dict[str, Any]]:
    def measure() -> dict[str, Any]:
        shape, generator = (n, channels, side, side), torch.Generator().manual_seed(0)
        fake, real, training = (torch.rand(shape, generator=generator).cumsum(3).to(DEVICE) / side for _ in range(3))
        fake = 0.95 * fake
        partition, kernel = PixelPartition.grid((side, side), 1, 5), GaussianKernel().resolved(real.flatten(1))
        one_pass = RealRegions(Compared(partition, kernel, error_views(training, partition), None, 0), real)
        whitening = Whitening.of(real)

        def apart() -> None:
            two_sample_test(fake, real, partition=partition)
            for seen in ((fake, real), (whitening(fake), whitening(real))):
                mmd_influence(*seen, partition=partition)
            cosine_mean_similarity(fake, real, kernel=kernel, partition=partition)
            maximum_mean_discrepancy(fake, real, kernel=kernel)

        exact = cosine_mean_similarity(fake.double(), real.double(), kernel=kernel, partition=partition)
        error = max(abs(one_pass.measure(fake).values[name] - float(x)) for name, x in exact.items())
        took, theirs = side_by_side(lambda: one_pass.measure(fake), apart, repeats=3)
        size, peers = channels * side**2, {"the functions one by one": theirs}
        # distances in both views, image and regions in the second, within the generated side and across
        return row(
            f"{n:,} v {n:,}", f"{size}", took, operations=9 * n * n * size, moved=8 * n * size, error=error, peers=peers
        )

    measure.__name__ = f"Regions_{side}x{side}x{channels}"
    return measure


def prdc_case(n: int) -> Callable[[], dict[str, Any]]:
    def measure() -> dict[str, Any]:
        fake, real = sides(n)
        metric = PRDC(k=NEIGHBORS)
        exact = prdc.compute_prdc(real.double().cpu().numpy(), fake.double().cpu().numpy(), nearest_k=NEIGHBORS)
        error = max(abs(float(value) - exact[name]) for name, value in measured(metric, fake, real).items())
        times = side_by_side(
            lambda: measured(metric, fake, real),
            lambda: prdc.compute_prdc(real.cpu().numpy(), fake.cpu().numpy(), nearest_k=NEIGHBORS),
            repeats=3,
        )
        return columns(n, times, ["prdc"], error)

    measure.__name__ = f"PRDC_{n}"
    return measure


def mmd_case(n: int) -> Callable[[], dict[str, Any]]:
    """MMD of all samples at once; KID draws 100 subsets of 1000 by default, whose cost does not grow with n.

    They are not the same number: KID has a polynomial kernel and a random draw.
    """

    def measure() -> dict[str, Any]:
        fake, real = sides(n)
        kernel = GaussianKernel().resolved(real)
        metric = MaximumMeanDiscrepancy(kernel)
        warnings.simplefilter("ignore", UserWarning)  # that it keeps the features
        kid = KernelInceptionDistance(feature=Features(), subset_size=1000)

        def plain() -> float:
            a, b = fake.cpu().numpy(), real.cpu().numpy()
            within = rbf_kernel(a, a, kernel.gamma).mean() + rbf_kernel(b, b, kernel.gamma).mean()
            return float(within - 2 * rbf_kernel(a, b, kernel.gamma).mean())

        doubles = MaximumMeanDiscrepancy(kernel)
        error = abs(float(measured(metric, fake, real)) - float(measured(doubles, fake.double(), real.double())))
        works = [lambda: measured(metric, fake, real), lambda: measured(kid, fake, real), plain]
        return columns(n, side_by_side(*works, repeats=3), ["torchmetrics' KID", "scikit-learn"], error)

    measure.__name__ = f"MMD_{n}"
    return measure


class Features(nn.Module):
    """Stands for KID's network: the features are there already."""

    num_features = DIM

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        return x


if __name__ == "__main__":
    cases = [regions_case(500, 1, 8), regions_case(500, 3, 32), regions_case(500, 3, 64)]
    cases += [*(prdc_case(n) for n in (1_000, 5_000, 10_000)), *(mmd_case(n) for n in (1_000, 5_000, 10_000))]
    run(__file__, cases, "Comparison of two sets", notes=NOTES)
