# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from scipy import stats

from genmonitor.evaluation.regions.search import measure_baseline, simultaneous_bands
from genmonitor.images.split import DRAWS


def draws_of(candidates, n, seed=0):
    """Return the 20 lists of indices that were drawn, and the bands."""
    drawn = []

    def measure(draws):
        drawn.extend(draws.tolist())
        return [{"mean": float(draw.float().mean())} for draw in draws]

    bands = measure_baseline(measure, candidates, n, seed)
    return drawn, bands


@pytest.mark.parametrize(("candidates", "n"), [(200, 10), (205, 10), (199, 10), (10, 10), (9, 10), (3, 50)])
def test_baseline_draws_have_n_of_the_candidates(candidates, n):
    drawn, _ = draws_of(candidates, n)
    assert len(drawn) == DRAWS == 20
    assert all(len(indices) == n and set(indices) <= set(range(candidates)) for indices in drawn)
    assert len({tuple(indices) for indices in drawn}) == 20


@pytest.mark.parametrize("candidates", [200, 205])
def test_baseline_draws_are_disjoint_where_there_are_enough(candidates):
    drawn, _ = draws_of(candidates, 10)
    assert len({index for indices in drawn for index in indices}) == 200


@pytest.mark.parametrize("candidates", [199, 11])
def test_baseline_draws_hold_no_image_twice_where_they_can_differ(candidates):
    drawn, _ = draws_of(candidates, 10)
    assert all(len(set(indices)) == 10 for indices in drawn)


def student(means, tail=0.05, widen=1.0):
    """The prediction interval of one more draw, about the median."""
    reach = widen * stats.t.ppf(1 - tail, len(means) - 1) * np.std(means, ddof=1) * np.sqrt(1 + 1 / len(means))
    return pytest.approx((np.median(means) - reach, np.median(means), np.median(means) + reach))


def test_baseline_bands_are_prediction_intervals():
    drawn, bands = draws_of(300, 10)
    assert bands == {"mean": student([np.mean(indices) for indices in drawn])}
    assert all(type(value) is float for value in bands["mean"])


def test_baseline_bands_are_widened_where_draws_overlap():
    """Draws of 10 of 40 without replacement have 3/4 of the variance of independent ones."""
    drawn, bands = draws_of(40, 10)
    assert bands == {"mean": student([np.mean(indices) for indices in drawn], widen=np.sqrt(4 / 3))}


@pytest.mark.slow
def test_bands_of_a_group_hold_together():
    """A 21st draw falls below some band in 5 % of the cases, below some one of those that hold alone in 20 %."""
    generator, left, left_singly = torch.Generator().manual_seed(0), 0, 0
    for _ in range(1000):
        draws = torch.randn(5, 21, generator=generator, dtype=torch.float64)
        values = {str(i): draws[i, :20].tolist() for i in range(5)}
        new = draws[:, 20]
        together, alone = simultaneous_bands(values, list(values)), simultaneous_bands(values)
        left += any(float(new[i]) < together[str(i)][0] for i in range(5))
        left_singly += any(float(new[i]) < alone[str(i)][0] for i in range(5))
    assert 25 <= left <= 75  # 50 expected, standard deviation 7
    assert left_singly > 150


@pytest.mark.slow
def test_bands_of_similarities_hold_although_they_are_skewed():
    """1 - CMS as a chi-square of 4 degrees, which would leave bands of the values themselves far more often."""
    generator, left, left_plain = torch.Generator().manual_seed(0), 0, 0
    for _ in range(1000):
        draws = 1 - 0.001 * torch.randn(4, 5, 21, generator=generator, dtype=torch.float64).square().sum(0)
        values = {str(i): draws[i, :20].tolist() for i in range(5)}
        new = draws[:, 20]
        skewed, plain = simultaneous_bands(values, list(values), list(values)), simultaneous_bands(values, list(values))
        left += any(float(new[i]) < skewed[str(i)][0] for i in range(5))
        left_plain += any(float(new[i]) < plain[str(i)][0] for i in range(5))
        assert all(band[2] < 1 for band in skewed.values())
    assert left <= 50 + 20  # 50 at most, standard deviation 7
    assert left_plain > 2 * 50


@pytest.mark.parametrize("value", [1.0, 1.0 + 1e-7])
def test_band_of_a_similarity_that_reaches_1_is_of_its_values(value):
    draws = {"a": [value, 0.9, 0.8, 0.7]}
    assert simultaneous_bands(draws, similarities=["a"]) == simultaneous_bands(draws)


def test_band_of_a_value_that_never_changes_is_that_value():
    assert simultaneous_bands({"a": [1.0] * 20, "b": [0.0, 1.0] * 10}, ["a", "b"])["a"] == (1.0, 1.0, 1.0)


def test_baseline_draws_follow_their_seed_alone():
    first, _ = draws_of(300, 10, seed=1)
    torch.manual_seed(5)
    assert draws_of(300, 10, seed=1)[0] == first
    assert draws_of(300, 10, seed=2)[0] != first


def test_baseline_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    draws_of(300, 10)
    assert torch.equal(torch.get_rng_state(), state)
