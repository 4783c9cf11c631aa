# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from genmonitor.evaluation.baseline import DRAWS, measure_baseline


def draws_of(candidates, n, seed=0):
    """Return the 20 lists of indices that were read."""
    read = []

    def reader(indices):
        read.append(indices)
        return torch.tensor(indices, dtype=torch.float32)

    bands = measure_baseline(lambda x: {"mean": float(x.mean())}, reader, torch.as_tensor(candidates), n, seed)
    return read, bands


@pytest.mark.parametrize(("candidates", "n"), [(200, 10), (205, 10), (199, 10), (10, 10), (9, 10), (3, 50)])
def test_every_draw_has_n_images_of_the_candidates(candidates, n):
    pool = list(range(1000, 1000 + candidates))
    read, _ = draws_of(pool, n)
    assert len(read) == DRAWS == 20
    assert all(len(indices) == n and set(indices) <= set(pool) for indices in read)
    taken = [index for indices in read for index in indices]
    if candidates >= 20 * n:
        assert len(set(taken)) == 20 * n  # no image in two draws
    elif candidates >= n:
        assert all(len(set(indices)) == n for indices in read)
    assert len({tuple(indices) for indices in read}) == 20


def test_the_bands_are_the_5_50_and_95_percent_quantiles_of_the_draws():
    read, bands = draws_of(range(300), 10)
    assert bands == {"mean": pytest.approx(np.quantile([np.mean(indices) for indices in read], [0.05, 0.5, 0.95]))}
    low, median, high = bands["mean"]
    assert low < median < high
    assert all(type(value) is float for value in bands["mean"])


def test_the_draws_are_the_seeds_and_leave_the_global_generator_alone():
    state = torch.get_rng_state()
    first, _ = draws_of(range(300), 10, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert draws_of(range(300), 10, seed=1)[0] == first
    assert draws_of(range(300), 10, seed=2)[0] != first
