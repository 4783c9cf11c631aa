# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from genmonitor import PixelPartition
from genmonitor.evaluation.regions.findings import RegionFindings
from genmonitor.evaluation.regions.tracker import RegionTracker
from genmonitor.functional import mmd_influence, relative_similarity_test

HALVES = PixelPartition.grid((2, 4), 1, 2)


def images(seed, left=0.0, right=0.0):
    x = torch.randn(60, 1, 2, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x + torch.tensor([left, left, right, right])


REAL = images(0)


def influence(x):
    return mmd_influence(x, REAL, partition=HALVES)


def ratios(x):
    """Return a measure that rises as MMD does."""
    return dict(zip(("image", "cluster_1", "cluster_2"), (10 * influence(x).mmd).exp().tolist(), strict=True))


def best_after(*samples):
    best = RegionTracker()
    for epoch, x in enumerate(samples):
        best.update(influence(x), ratios(x), {}, float(epoch))
    return best


def test_best_says_nothing_before_the_first_evaluation():
    assert RegionTracker().scores(influence(images(1))) == {}
    assert RegionTracker().far(ratios(images(1))) == []


def test_best_scores_are_standardized_differences_from_the_best():
    one, two = images(1, left=1), images(2, right=1)
    expected = relative_similarity_test(two, one, REAL, partition=HALVES, paired=True)
    found = best_after(one).scores(influence(two))
    assert found == {name: pytest.approx(float(x.difference / x.standard_error)) for name, x in expected.items()}
    assert found["cluster_1"] > 3
    assert found["cluster_2"] < -3


def test_best_is_kept_region_by_region():
    best = best_after(images(1, left=2), images(2, right=2), images(3, left=2, right=2))
    assert (best.epochs["cluster_1"], best.epochs["cluster_2"]) == (1, 0)
    worst = influence(images(3, left=2, right=2))
    for name, x in (("cluster_1", images(2, right=2)), ("cluster_2", images(1, left=2))):
        assert best.scores(worst)[name] == pytest.approx(best_after(x).scores(worst)[name])


def test_best_names_the_regions_that_are_farther_by_a_quarter():
    best = RegionTracker()
    best.update(influence(images(1)), {"image": 4.0, "cluster_1": 2.0, "cluster_2": 0.5}, {}, 0.0)
    assert best.far({"image": 6.0, "cluster_1": 2.4, "cluster_2": 1.26}) == ["cluster_2"]
    assert best.far({"image": 5.9, "cluster_1": 2.5, "cluster_2": 1.24}) == ["cluster_1"]  # 1 is chance


def test_finding_number_curve_and_best_are_of_one_measure():
    best = RegionTracker()
    best.update(influence(images(1)), {"image": 4.0, "cluster_1": 2.0, "cluster_2": 0.8}, {}, 17.0)
    changes = best.changes({"cluster_1": 2.0, "cluster_2": 12.4}, {"cluster_1": 0.0, "cluster_2": -9.0})
    findings = RegionFindings.of(HALVES)
    (found,) = best.findings_of(changes, 40.0, findings.area, findings.values.error_ratio)
    assert str(found) == (
        "cluster_2 (right half) got worse: error ratio 12 × at epoch 40, 1 × (chance) at epoch 17, its best "
        "(p < 0.0001)."
    )
    said = "worse than at its best (p < 0.0001)"
    assert (found.measure, found.fine, found.verdict) == ("error_ratio_2", False, said)
    (spec,) = (spec for spec in findings.values.specs if spec.key == found.measure)
    assert (spec.region, spec.better, spec.chart) == ("cluster_2", "low", "Error ratio")


def test_best_scores_of_real_images_that_never_vary_are_nan():
    still = torch.zeros(20, 1, 2, 4)
    best = RegionTracker()
    best.update(mmd_influence(still, still, partition=HALVES), ratios(images(1)), {}, 0.0)
    scores = best.scores(mmd_influence(still + 1, still, partition=HALVES))
    assert all(math.isnan(score) for score in scores.values())


def test_best_of_other_real_images_starts_anew():
    best = best_after(images(1))
    others = mmd_influence(images(2), images(9), partition=HALVES)
    fewer = mmd_influence(images(2)[:40], REAL, partition=HALVES)
    for current in (others, fewer):
        assert best.scores(current) == {}
    best.update(others, ratios(images(2)), {}, 7.0)
    assert set(best.epochs.values()) == {7.0}
    assert best.scores(others)["image"] == 0


def test_best_survives_a_checkpoint(tmp_path):
    best, again = best_after(images(1, left=1), images(2)), RegionTracker()
    torch.save(best.state_dict(), tmp_path / "state.pt")
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    now = influence(images(3, left=2))
    assert again.scores(now) == best.scores(now)
    assert (again.epochs, again.best) == (best.epochs, best.best)


def test_best_of_nothing_is_saved_as_nothing():
    again = best_after(images(1))
    again.load_state_dict(RegionTracker().state_dict())
    assert again.scores(influence(images(2))) == {}
