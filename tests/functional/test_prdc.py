# SPDX-License-Identifier: Apache-2.0
import prdc
import pytest
import torch
from _helpers import entropy_references as twin
from _helpers import lattices
from _helpers.golden import digits
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from genmonitor.functional import precision_recall_density_coverage
from genmonitor.linalg import chunking, distances
from genmonitor.linalg.distances import neighbor_radii


def draw(n: int, d: int = 3, seed: int = 0, shift: float = 0.0) -> Tensor:
    return shift + torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def floats(fake: Tensor, real: Tensor, k: int = 5) -> dict[str, float]:
    found = precision_recall_density_coverage(fake, real, k=k)
    assert {value.dtype for value in found.values()} == {torch.float64}
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "m", "d", "k"), [(300, 200, 2, 5), (80, 150, 20, 3), (60, 60, 64, 1)])
def test_against_the_prdc_package(n, m, d, k, dtype):
    fake, real = draw(n, d, shift=0.4).to(dtype), draw(m, d, seed=1).to(dtype)
    expected = prdc.compute_prdc(real_features=real.double().numpy(), fake_features=fake.double().numpy(), nearest_k=k)
    assert floats(fake, real, k) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(n=st.integers(4, 14), m=st.integers(4, 14), k=st.integers(1, 3), seed=st.integers(0, 99))
def test_twin_order_and_invariances(n, m, k, seed):
    fake, real = draw(n, 2, seed, shift=0.5), draw(m, 2, seed + 1)
    expected = twin.prdc(fake.numpy(), real.numpy(), k)
    for x, y in ((fake, real), (fake.flip(0), real.flip(0)), (3 * fake + 50, 3 * real + 50)):
        assert floats(x, y, k) == pytest.approx(expected)
    assert max(expected[name] for name in ("precision", "recall", "coverage")) <= 1


def test_fake_comes_before_real():
    """One mode out of two: what is made is real, and half of what is real is made."""
    fake, real = draw(60), torch.cat([draw(40, seed=1), draw(40, seed=2, shift=100)])
    found = floats(fake, real)
    assert found["precision"] > 0.8
    assert 0.3 < found["recall"] <= 0.5
    assert 0.3 < found["coverage"] <= 0.5
    swapped = floats(real, fake)
    assert swapped["precision"] == found["recall"]
    assert swapped["recall"] == found["precision"]


def test_the_same_samples():
    """Each lies in its own ball, which has k - 1 others within."""
    x = draw(50)
    assert floats(x, x, 4) == {"precision": 1, "recall": 1, "density": pytest.approx(1), "coverage": 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_balls_of_copies_are_empty(dtype):
    """A generator that makes one real image over and over: exact distances are 0, rounded ones need not be."""
    real = (0.3 + draw(40, 64)).to(dtype)
    fake = real[:1].repeat(30, 1)
    found = floats(fake, real, 3)
    expected = twin.prdc(fake.double().numpy(), real.double().numpy(), 3)
    assert found == pytest.approx(expected)
    assert found["recall"] == 0
    assert found["precision"] == 1
    assert (neighbor_radii(fake, 3) == 0).all()


def test_near_copies_are_told_apart():
    """Distances of 1e-6 of the norm, the last digits of float32, still count."""
    real = 1 + 1e-6 * draw(30, 8)
    assert floats(real[:15] + 1e-7, real, 2) == pytest.approx(twin.prdc((real[:15] + 1e-7).numpy(), real.numpy(), 2))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(found=lattices.lattices(2, least=6), k=st.integers(1, 5))
def test_on_a_grid_distances_tie_as_in_whole_numbers(found, k):
    dtype, (fake, real) = found
    expected = lattices.prdc(lattices.whole(fake), lattices.whole(real), k)
    assert floats(fake, real, k) == pytest.approx(expected, abs=1e-12)
    if dtype == torch.float64:  # a grid that no dtype holds exactly
        assert floats(0.1 * fake, 0.1 * real, k) == pytest.approx(expected, abs=1e-12)


def test_one_hot_samples_are_all_equally_far():
    found = floats(torch.eye(60)[:30], torch.eye(60)[30:])
    assert found == {"precision": 0, "recall": 0, "density": 0, "coverage": 0}


def test_binary_digits_are_as_the_prdc_package_counts_them():
    images = (digits().flatten(1) > 0.5).float()
    fake, real = images[:800], images[800:1600]
    expected = lattices.prdc(lattices.whole(fake), lattices.whole(real), 5)
    assert floats(fake, real) == pytest.approx(expected, abs=1e-12)
    assert floats(fake, real) == pytest.approx(prdc.compute_prdc(real.numpy(), fake.numpy(), 5), abs=1e-12)


def test_blocks_of_pairs_change_nothing(monkeypatch):
    fake, real = draw(50, shift=0.5), draw(70, seed=1)
    whole = floats(fake, real)
    rows = []
    original = distances.squared_distances

    def counted(x: Tensor, y: Tensor, **options: float) -> Tensor:
        rows.append((len(x), len(y)))
        return original(x, y, **options)

    monkeypatch.setattr(distances, "squared_distances", counted)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 3 * 8 * 70 * 4)
    assert floats(fake, real) == pytest.approx(whole, abs=1e-15)
    assert max(n * m for n, m in rows) <= 4 * 70
