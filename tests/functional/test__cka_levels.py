# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.functional import _cka_taylor as taylor_cka
from genmonitor.functional._cka_levels import FLOAT32_ERROR, by_precision, level_pairs, sum_of_squares


def draw(d: int, n: int, gamma: float, kind: str = "normal") -> tuple[torch.Tensor, torch.Tensor]:
    """Levels [R, d, N] and their spectrum of sites that depend on each other."""
    x = torch.randn(d, 1, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x + x.roll(1, dims=0)
    if kind == "few values":
        x = x.sign() + (x.abs() > 1).double()
    if kind == "rarely lit":
        x = (x > x.flatten(1).quantile(0.98, dim=1)[:, None, None]).double() * (2 + x)
    return taylor_cka._principal_levels(x - x.mean(2, keepdim=True), gamma, 4)


def all_pairs(spectrum: torch.Tensor) -> list[tuple[int, int]]:
    size = range(spectrum.shape[1])
    return [(k, other) for k in size for other in size]


def exact(levels: torch.Tensor, pairs: list[tuple[int, int]]) -> torch.Tensor:
    return sum((levels[k] @ levels[other].T).square() for k, other in pairs)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6])
def test_pairs_left_out_add_up_to_less_than_the_tolerance(tolerance):
    levels, spectrum = draw(12, 100, 1e-2)
    pairs = level_pairs(spectrum, tolerance)
    left_out = sorted(set(all_pairs(spectrum)) - set(pairs))
    largest, first = spectrum.amax(0), max(max(pair) for pair in pairs) + 1
    one_by_one = sum(float(largest[k] * largest[other]) for k, other in left_out)
    beyond = float(spectrum[:, first:].norm(dim=1).max())
    assert 0 < (2 * beyond + beyond**2 if len(pairs) == first**2 else one_by_one) <= tolerance
    assert exact(levels, left_out).max() <= tolerance


def test_level_pairs_leave_out_whole_levels_where_fewer_stay():
    spectrum = torch.tensor([1.0] + 40 * [1e-3]).double().repeat(5, 1)
    beyond = 1e-3 * 40**0.5
    assert level_pairs(spectrum, 2.1 * beyond) == [(0, 0)]
    assert len(level_pairs(spectrum, 1.9 * beyond)) > 10


def test_one_pair_is_left_even_if_nothing_matters():
    assert level_pairs(draw(12, 100, 1e-2)[1], 10.0) == [(0, 0)]


def test_what_is_left_out_can_be_as_much_as_is_allowed_for():
    """The weak level of each site lies along the strong one of the other."""
    weight = 1e-3
    axes = torch.eye(2, dtype=torch.float64)
    levels = torch.stack([axes, weight**0.5 * axes.flip(0)])
    spectrum = torch.tensor([[1, weight], [1, weight]], dtype=torch.float64)
    missing = exact(levels, all_pairs(spectrum))[0, 1]
    assert float(missing) == pytest.approx(2 * weight)
    assert level_pairs(spectrum, 2.1 * weight) == [(0, 0)]
    assert len(level_pairs(spectrum, 0.9 * weight)) > 2


def test_a_looser_tolerance_multiplies_fewer_pairs():
    _, spectrum = draw(12, 100, 1e-2)
    assert len(level_pairs(spectrum, 1e-2)) < len(level_pairs(spectrum, 1e-6))


@pytest.mark.parametrize("kind", ["normal", "few values", "rarely lit"])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-5, 3e-7])
def test_every_entry_is_within_the_tolerance(kind, tolerance):
    levels, spectrum = draw(300, 600, 4e-3, kind)
    pairs = all_pairs(spectrum)
    found = sum_of_squares(levels, spectrum, pairs, tolerance)
    assert torch.equal(found, found.T)
    assert (found - exact(levels, pairs)).abs().max() <= 3 * tolerance


def test_the_weakest_pairs_are_rounded_and_the_heaviest_are_not():
    levels, spectrum = draw(96, 600, 4e-3)
    heavy, middle, weak = by_precision(levels, spectrum, all_pairs(spectrum), 3e-7)
    assert sorted(heavy + middle + weak) == all_pairs(spectrum)
    weights = [
        [float(spectrum[:, k].max() * spectrum[:, m].max()) for k, m in group] for group in (weak, middle, heavy)
    ]
    assert all(weights)
    assert max(weights[0]) <= min(weights[1]) <= max(weights[1]) <= 6e-7 / FLOAT32_ERROR < min(weights[2])


def test_concentrated_levels_are_not_rounded():
    """Where a few samples carry a level, its rounding errors do not average out."""
    levels, spectrum = draw(96, 600, 4e-3)
    concentrated = torch.zeros_like(levels)
    concentrated[:, :, 0] = spectrum.T.sqrt()
    pairs = all_pairs(spectrum)
    assert len(by_precision(concentrated, spectrum, pairs, 3e-7)[2]) < len(
        by_precision(levels, spectrum, pairs, 3e-7)[2]
    )
