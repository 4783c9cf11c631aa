# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from genmonitor.evaluation.baseline import DRAWS, measure_baseline


def draws_of(candidates, n, seed=0):
    """Return the 20 lists of indices that were read, and the bands."""
    read = []

    def reader(indices):
        read.append(indices)
        return torch.tensor(indices, dtype=torch.float32)

    bands = measure_baseline(lambda x: {"mean": float(x.mean())}, reader, torch.as_tensor(candidates), n, seed)
    return read, bands


@pytest.mark.parametrize(("candidates", "n"), [(200, 10), (205, 10), (199, 10), (10, 10), (9, 10), (3, 50)])
def test_baseline_draws_have_n_of_the_candidates(candidates, n):
    pool = list(range(1000, 1000 + candidates))
    read, _ = draws_of(pool, n)
    assert len(read) == DRAWS == 20
    assert all(len(indices) == n and set(indices) <= set(pool) for indices in read)
    assert len({tuple(indices) for indices in read}) == 20


@pytest.mark.parametrize("candidates", [200, 205])
def test_baseline_draws_are_disjoint_where_there_are_enough(candidates):
    read, _ = draws_of(range(candidates), 10)
    assert len({index for indices in read for index in indices}) == 200


@pytest.mark.parametrize("candidates", [199, 10])
def test_baseline_draws_hold_no_image_twice_where_avoidable(candidates):
    read, _ = draws_of(range(candidates), 10)
    assert all(len(set(indices)) == 10 for indices in read)


def test_baseline_bands_are_the_5_50_and_95_percent_quantiles():
    read, bands = draws_of(range(300), 10)
    assert bands == {"mean": pytest.approx(np.quantile([np.mean(indices) for indices in read], [0.05, 0.5, 0.95]))}
    low, median, high = bands["mean"]
    assert low < median < high
    assert all(type(value) is float for value in bands["mean"])


def test_baseline_draws_follow_their_seed_alone():
    first, _ = draws_of(range(300), 10, seed=1)
    torch.manual_seed(5)
    assert draws_of(range(300), 10, seed=1)[0] == first
    assert draws_of(range(300), 10, seed=2)[0] != first


def test_baseline_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    draws_of(range(300), 10)
    assert torch.equal(torch.get_rng_state(), state)


def test_baseline_draws_go_through_the_progress_bar():
    seen = []

    def progress(iterable, description):
        seen.append(description)
        return iter(list(iterable)[:2])

    def read(indices):
        return torch.tensor(indices)

    def measure(images):
        seen.append(len(images))
        return {}

    measure_baseline(measure, read, torch.arange(9), 3, 0, progress)
    assert seen == ["baseline", 3, 3]
