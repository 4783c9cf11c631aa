# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers import lattices
from hypothesis import given, settings
from torch import Tensor

from genmonitor.functional import authenticity
from genmonitor.linalg import chunking


def draw(n: int, d: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def reference(fake: Tensor, real: Tensor) -> float:
    """Count, sample by sample."""
    authentic = 0
    for x in fake:
        nearest = min(range(len(real)), key=lambda j: float((x - real[j]).norm()))
        others = [float((real[nearest] - y).norm()) for j, y in enumerate(real) if j != nearest]
        authentic += float((x - real[nearest]).norm()) > min(others)
    return authentic / len(fake)


@pytest.mark.parametrize("budget", [2**29, 3 * 8 * 40])
def test_samples_are_counted_one_by_one(monkeypatch, budget):
    fake, real = draw(30), draw(40, seed=1)
    fake[:8] = real[5:13] + 0.01
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    assert float(authenticity(fake, real)) == reference(fake, real)
    assert float(authenticity(3 * fake + 50, 3 * real + 50)) == reference(fake, real)


def test_copies_are_not_authentic_and_noise_is():
    real = draw(50)
    assert authenticity(real[:20], real) == 0
    assert authenticity(real[:20] + 1e-3, real) == 0
    assert authenticity(real[:20] + 100, real) == 1
    assert authenticity(torch.cat([real[:15] + 1e-4, draw(5, seed=2) + 30]), real) == 0.25


def test_a_copy_of_what_occurs_twice_in_training_is_a_copy():
    real = torch.tensor([[0.0], [0.0], [5.0]])
    assert authenticity(torch.tensor([[0.0], [0.0]]), real) == 0
    assert authenticity(torch.tensor([[0.1], [0.0]]), real) == 0.5


@settings(max_examples=60, deadline=None, derandomize=True)
@given(found=lattices.lattices(2))
def test_on_a_grid_distances_tie_as_in_whole_numbers(found):
    dtype, (fake, real) = found
    expected = lattices.authenticity(lattices.whole(fake), lattices.whole(real))
    assert float(authenticity(fake, real)) == expected
    assert float(authenticity(fake.flip(0), real.flip(0))) == expected
    if dtype == torch.float64:
        assert float(authenticity(0.1 * fake, 0.1 * real)) == expected


def test_one_hot_samples_are_no_further_away_than_training_samples_are_from_each_other():
    assert authenticity(torch.eye(60)[:30], torch.eye(60)[30:]) == 0


def test_of_several_nearest_a_copy_of_any_is_one():
    """2 lies between 1, whose own nearest is 0.5 away, and 3, whose own is 2 away."""
    real = torch.tensor([[0.5], [1.0], [3.0]])
    for order in ([0, 1, 2], [2, 1, 0]):
        assert authenticity(torch.tensor([[2.0], [2.0]]), real[order]) == 0


def test_what_it_says_of_real_samples_is_documented():
    """Of 1000 held-out samples: a standard deviation of 0.016 at most from drawing them."""
    for dim, count, share in ((2, 1000, 0.4), (64, 1000, 0.8), (768, 1000, 0.87), (64, 250, 0.78), (64, 4000, 0.83)):
        held_out, training = draw(1000, dim).float(), draw(count, dim, seed=1).float()
        assert float(authenticity(held_out, training)) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(
    ("fake", "real", "message"),
    [
        (draw(1), draw(5), "more than `k`=1 fake samples, but got 1"),
        (draw(5), draw(1), "more than `k`=1 real samples, but got 1"),
        (draw(5), draw(5, 2), "fake"),
    ],
)
def test_wrong_sides_are_refused(fake, real, message):
    with pytest.raises(ValueError, match=message):
        authenticity(fake, real)
