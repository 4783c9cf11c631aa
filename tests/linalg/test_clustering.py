# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from genmonitor.linalg.clustering import (
    LINKAGES,
    adjusted_rand_index,
    best_overlaps,
    cut_tree,
    merge_tree,
    site_points,
)

LABELS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=30)


def blocks(noise=0.0, seed=0):
    """Return a CKA matrix of 6×6 sites whose left and right halves vary each by itself, and the halves."""
    halves = (torch.arange(36) % 6 >= 3).long()
    noise = noise * torch.rand(36, 36, generator=torch.Generator().manual_seed(seed))
    return 0.6 * (halves[:, None] == halves) + (noise + noise.T) / 2 + 0.4 * torch.eye(36), halves


@settings(max_examples=60, deadline=None, derandomize=True)
@given(LABELS)
def test_adjusted_rand_index_is_that_of_scikit_learn(pairs):
    first, second = torch.tensor(pairs).T
    expected = adjusted_rand_score(first, second)
    assert adjusted_rand_index(first, second) == pytest.approx(expected, abs=1e-12)
    assert adjusted_rand_index(second, first) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(LABELS)
def test_best_overlaps_are_shares_and_1_with_oneself(pairs):
    first, second = torch.tensor(pairs).T
    assert all(0 < value <= 1 for value in best_overlaps(first, second).values())
    assert set(best_overlaps(first, first).values()) == {1.0}
    assert list(best_overlaps(first, second)) == first.unique().tolist()


@pytest.mark.parametrize("linkage", LINKAGES)
def test_every_linkage_finds_planted_halves(linkage):
    matrix, halves = blocks(noise=0.3)
    labels = cut_tree(merge_tree(site_points(matrix, (6, 6), linkage), linkage), 2)
    assert adjusted_rand_index(labels, halves) == 1


@pytest.mark.parametrize("linkage", LINKAGES)
def test_points_leave_constant_sites_out(linkage):
    matrix, _ = blocks()
    matrix[5] = matrix[:, 5] = 0
    assert site_points(matrix, (6, 6), linkage).shape == (35, 35)


def test_smoothing_follows_neighbors_where_single_sites_are_noise():
    matrix, halves = blocks(noise=8.0)
    found = {k: cut_tree(merge_tree(site_points(matrix, (6, 6), k), k), 2) for k in ("average", "smoothed")}
    assert adjusted_rand_index(found["smoothed"], halves) > 0.8 > adjusted_rand_index(found["average"], halves)
