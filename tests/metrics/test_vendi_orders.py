# SPDX-License-Identifier: Apache-2.0
"""Vendi scores of all orders against NumPy, of features whose smallest eigenvalues are a millionth of the largest."""

import functools
import math

import numpy as np
import pytest
import torch
from _helpers import entropy_references as twin
from torchmetrics import MetricCollection

from genmonitor import GaussianKernel, RKEScore, VendiScore
from genmonitor.functional import vendi, vendi_from_covariance, vendi_from_gram, vendi_score
from genmonitor.kernels.covariance import random_features
from genmonitor.linalg.spectrum import FLOOR

ORDERS = [0.05, 0.1, 0.5, 0.9, 1, 1.5, 2, 10, math.inf]
DTYPES = [torch.float32, torch.bfloat16, torch.float64]
SIZES = {64: 700, 512: 1000, 768: 1000}
"""Samples for so many features: more of them, so that the covariance has full rank."""


@functools.cache
def samples(dim: int) -> torch.Tensor:
    """Variances that fall like one over the square of the rank, around a mean that all share."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.arange(1, dim + 1).double() ** -1
    noise = torch.randn(SIZES[dim], dim, generator=generator, dtype=torch.float64)
    return noise * scale + 0.3 * torch.randn(1, dim, generator=generator, dtype=torch.float64)


def scores(spectrum: np.ndarray) -> list[float]:
    p = spectrum[spectrum > 1e-14] / spectrum.sum()
    out = []
    for order in ORDERS:
        if order == 1:
            out.append(math.exp(-(p * np.log(p)).sum()))
        else:
            out.append(float(1 / p.max() if math.isinf(order) else (p**order).sum() ** (1 / (1 - order))))
    return out


@functools.cache
def expected(dim: int, dtype: torch.dtype) -> list[float]:
    phi = twin.unit(samples(dim).to(dtype).double().numpy())
    return scores(np.linalg.eigvalsh(phi.T @ phi / len(phi)))


@pytest.fixture(autouse=True)
def orders_share_a_decomposition(monkeypatch):
    """Decompose the same matrix once: most of the time that these tests would take."""
    known: list[tuple[torch.Tensor, torch.Tensor]] = []

    def eigenvalues(matrix, *args):
        if not known or not torch.equal(known[-1][0], matrix):
            known.append((matrix, original(matrix, *args)))
        return known[-1][1]

    original = vendi.psd_eigenvalues
    monkeypatch.setattr(vendi, "psd_eigenvalues", eigenvalues)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [64, 512])
def test_function(dim, dtype):
    x = samples(dim).to(dtype)
    assert [float(vendi_score(x, order=order)) for order in ORDERS] == pytest.approx(expected(dim, dtype), rel=1e-8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [64, 512])
def test_metric(dim, dtype):
    # RKE leads the group: one state serves all orders, whatever metric keeps it
    metrics = MetricCollection([RKEScore()], compute_groups=True)
    metrics.add_metrics({f"order {index}": VendiScore(order=order) for index, order in enumerate(ORDERS)})
    for batch in samples(dim).to(dtype).split(300):
        metrics.update(batch)
    assert len(metrics.compute_groups) == 1
    found = list(metrics.compute().values())
    wanted = expected(dim, dtype)
    assert [float(value) for value in found] == pytest.approx([wanted[ORDERS.index(2)], *wanted], rel=1e-8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fewer_samples_than_features(dtype):
    x = samples(768)[:300].to(dtype)
    phi = twin.unit(x.double().numpy())
    found = [float(vendi_score(x, order=order)) for order in ORDERS]
    assert found == pytest.approx(scores(np.linalg.eigvalsh(phi @ phi.T / 300)), rel=1e-8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_features(dtype):
    x, kernel = samples(64).to(dtype), GaussianKernel(0.5)
    phi = twin.fourier(
        x.double().numpy(), random_features(GaussianKernel(0.5), 64, 256, 3).frequencies.double().numpy()
    )
    wanted = scores(np.linalg.eigvalsh(phi.T @ phi / len(phi)))
    found = [float(vendi_score(x, kernel=kernel, num_features=256, seed=3, order=order)) for order in ORDERS]
    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_vendi_does_not_count_what_rounding_made(order):
    """Rank 3: the other eigenvalues of the rounded matrix are noise, and at a small order each would be a mode."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(100, 3, generator=generator) @ torch.randn(3, 60, generator=generator)
    phi = torch.from_numpy(twin.unit(drawn.double().numpy()))
    wanted = float(vendi_from_gram(phi @ phi.T, order=order))
    for dtype, error in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
        assert float(vendi_from_gram((phi @ phi.T).to(dtype), order=order)) == pytest.approx(wanted, rel=error)
    covariance = (phi.T @ phi / 100).float()
    assert float(vendi_from_covariance(covariance, order=order)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("above", [0.5, 2.0])
def test_the_floor(above):
    """An eigenvalue counts if it is above 1e-12 of the norm."""
    covariance = torch.diag(torch.tensor([1.0, above * FLOOR]).double())
    assert float(vendi_from_covariance(covariance, order=0.05)) == pytest.approx(
        (1 + (above * FLOOR) ** 0.05) ** (1 / 0.95) if above > 1 else 1, rel=1e-9
    )
