# SPDX-License-Identifier: Apache-2.0
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from cutoffs import fit_cutoffs

PLANTED = (0.2, 0.4, 0.85)


def judged(n: int, wrong: float = 0.0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return similarities and the levels that the planted cut-offs give them, a share of them drawn at random."""
    rng = np.random.default_rng(seed)
    similarity = rng.random(n)
    levels = np.searchsorted(PLANTED, similarity, side="right")
    lost = rng.random(n) < wrong
    levels[lost] = rng.integers(0, 4, lost.sum())
    return torch.from_numpy(similarity), torch.from_numpy(levels)


def most_right(values, levels, count) -> int:
    """The most labels that any cut-offs name right, by trying all."""
    edges = [-np.inf, *np.unique(values), np.inf]
    named = (np.searchsorted(cuts, values, side="right") for cuts in combinations_with_replacement(edges, count - 1))
    return max(int((found == levels).sum()) for found in named)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [2, 3, 4])
def test_no_cutoffs_name_more_levels_right(seed, count):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 9, 14) / 8  # many are equal
    levels = np.concatenate([np.arange(count), rng.integers(0, count, 14 - count)])
    found = fit_cutoffs(torch.from_numpy(values), torch.from_numpy(levels))
    assert round(14 * found.accuracy) == most_right(values, levels, count)
    assert list(found.cutoffs) == sorted(found.cutoffs)
    named = np.searchsorted(found.cutoffs, values, side="right")
    assert (named == levels).mean() == pytest.approx(found.accuracy)


def test_planted_cutoffs_are_found():
    found = fit_cutoffs(*judged(2000))
    assert found.cutoffs == pytest.approx(PLANTED, abs=0.005)
    assert found.accuracy == 1
    assert found.cross_validated > 0.99
    noisy = fit_cutoffs(*judged(2000, wrong=0.3))
    assert noisy.cutoffs == pytest.approx(PLANTED, abs=0.03)
    assert noisy.cross_validated == pytest.approx(1 - 0.3 * 3 / 4, abs=0.03)
    assert noisy.deviation == pytest.approx(np.std(noisy.fold_accuracies, ddof=1))
    assert 0 < noisy.deviation < 0.05


def test_folds_are_judged_by_cutoffs_of_the_others():
    random = judged(60, wrong=1.0)
    found = fit_cutoffs(*random)
    assert len(found.fold_accuracies) == 5
    assert found.cross_validated < found.accuracy  # what was fitted to chance does not carry over
    assert fit_cutoffs(*random) == found
    assert fit_cutoffs(*random, seed=1).fold_accuracies != found.fold_accuracies


def test_each_fold_holds_every_level():
    similarity = torch.arange(100) // 10 / 10
    levels = (
        similarity >= 0.9
    ).long()  # ten of a hundred: a fold without them would be named right by any high cut-off
    found = fit_cutoffs(similarity, levels)
    assert found.fold_accuracies == (1.0,) * 5
    assert found.cutoffs == pytest.approx((0.85,))


def test_a_measure_that_falls_with_distance_will_do():
    similarity, levels = judged(200)
    distances = 5 * (1 - similarity) ** 2
    found = fit_cutoffs(-distances, levels)
    assert [1 - (-cut / 5) ** 0.5 for cut in found.cutoffs] == pytest.approx(
        fit_cutoffs(similarity, levels).cutoffs, abs=0.01
    )


def test_a_level_that_no_value_speaks_for_has_no_room():
    found = fit_cutoffs(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 1, 0]), folds=3)
    assert found.accuracy == pytest.approx(1 / 3)
    assert min(found.cutoffs) == -float("inf") or max(found.cutoffs) == float("inf")


def test_refusals():
    similarity, levels = judged(30)
    with pytest.raises(ValueError, match=r"every level from 0 to the highest.* but got \[0, 2\]"):
        fit_cutoffs(similarity, levels.clamp(0, 1) * 2)
    with pytest.raises(ValueError, match=r"two at least, but got \[0\]"):
        fit_cutoffs(similarity, 0 * levels)
    with pytest.raises(ValueError, match="every level from 0"):
        fit_cutoffs(similarity, levels - 1)
    for wrong in ((similarity, levels[1:]), (similarity.view(5, 6), levels), (similarity / 0, levels)):
        with pytest.raises(ValueError, match="`similarity` and `levels` of one shape"):
            fit_cutoffs(*wrong)
    for folds in (1, 40):
        with pytest.raises(ValueError, match=f"from 2 to the number of pairs, 30, but got {folds}"):
            fit_cutoffs(similarity, levels, folds=folds)
