# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor.functional import precision_recall_density_coverage, realism_and_rarity
from genmonitor.linalg import chunking


def draw(n: int, d: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def reference(fake: np.ndarray, real: np.ndarray, k: int) -> tuple[list[float], list[float]]:
    """From the formulas, sample by sample."""
    radii = [sorted(float(np.sum((x - y) ** 2)) for y in real)[k] for x in real]  # the nearest is itself
    median = sorted(radii)[(len(radii) - 1) // 2]
    realism, rarity = [], []
    for x in fake:
        distances = [float(np.sum((x - y) ** 2)) for y in real]
        ratios = [r / d if d else np.inf for r, d in zip(radii, distances, strict=True) if r <= median or not d]
        realism.append(max(ratios) ** 0.5)
        inside = [r for r, d in zip(radii, distances, strict=True) if d < r]
        rarity.append(min(inside) ** 0.5 if inside else np.nan)
    return realism, rarity


@pytest.mark.parametrize("budget", [2**29, 4 * 8 * 40 * 3])
@pytest.mark.parametrize("k", [1, 3])
def test_twin(monkeypatch, budget, k):
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    fake, real = 1.3 * draw(30, seed=1), draw(40)
    fake[0] = real[3]
    found = realism_and_rarity(fake, real, k=k)
    for value, expected in zip(found, reference(fake.numpy(), real.numpy(), k), strict=True):
        np.testing.assert_allclose(value, expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 4))
def test_ties_on_a_grid_are_exact_wherever_it_lies(seed, k):
    """Whole numbers tie all the time; open balls leave out what is exactly as far as the k-th neighbor."""
    generator = torch.Generator().manual_seed(seed)
    fake, real = (torch.randint(0, 4, (n, 3), generator=generator).double() for n in (15, 20))
    _, expected = reference(fake.numpy(), real.numpy(), k)
    for shift, scale in ((0, 1), (4096, 0.25)):
        _, rarity = realism_and_rarity(scale * fake + shift, scale * real + shift, k=k)
        np.testing.assert_allclose(rarity / scale, expected, rtol=1e-9)


def test_samples_in_a_ball_are_those_that_precision_counts():
    fake, real = 1.5 * draw(200, seed=1), draw(100)
    _, rarity = realism_and_rarity(fake, real, k=5)
    precision = precision_recall_density_coverage(fake, real, k=5)["precision"]
    assert float((~rarity.isnan()).double().mean()) == float(precision)


def test_an_outlier_is_unrealistic_and_a_sample_in_the_tail_is_rare():
    real = draw(500, 2)
    fake = torch.tensor([[0.0, 0.0], [2.5, 0.0], [20.0, 0.0]])
    realism, rarity = realism_and_rarity(fake.double(), real)
    assert realism[2] < 0.1 < realism[0]
    assert rarity[0] < rarity[1]
    assert rarity[2].isnan()


def test_too_few_real_samples_are_refused():
    with pytest.raises(ValueError, match="Expected more than `k`=3 real samples, but got 3"):
        realism_and_rarity(draw(5), draw(3))
    assert len(realism_and_rarity(draw(1), draw(4))[0]) == 1  # one generated sample is enough
