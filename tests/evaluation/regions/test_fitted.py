# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.evaluations import fit, halves, region_evaluator, samples_of

from genmonitor import PixelPartition
from genmonitor.evaluation.regions import fitted as module


def fitted(n=80):
    """Return a fitted evaluator, and real images among which copies are looked for."""
    real = halves(n)
    evaluator = region_evaluator(partition=PixelPartition.grid((4, 6), 1, 2))
    fit(evaluator, real, halves(8, seed=1))
    compared = set(evaluator.fitted.real_origin["indices"])
    return evaluator, real[[i for i in range(n) if i not in compared]]


def test_copies_of_training_images_are_at_distance_zero():
    evaluator, known = fitted()
    generated = torch.cat([known[[3, 17]], halves(10, seed=5)])
    images, distances = evaluator.fitted.nearest.find(generated)
    assert torch.equal(images[:2], known[[3, 17]])
    assert distances[:2] == [0.0, 0.0]
    assert all(0.2 < distance < 5 for distance in distances[2:])
    assert torch.tensor(distances[2:]).median() == pytest.approx(1, abs=0.3)  # of the same distribution


def test_shown_samples_have_their_nearest_real_images_beside():
    evaluator, known = fitted()
    shown = evaluator.presenter().shown_samples(samples_of(torch.cat([known[:1], halves(50, seed=5)])))
    assert shown.tiles.shape == shown.nearest.shape == (40, 4, 6, 3)
    assert (shown.tiles[0] == shown.nearest[0]).all()
    assert (shown.tiles[1] != shown.nearest[1]).any()
    assert evaluator.presenter().shown_real().tiles.shape == (24, 4, 6, 3)


def test_real_images_that_are_compared_with_are_not_among_them(monkeypatch):
    monkeypatch.setattr(module, "MAX_IMAGES", 12)
    evaluator, _ = fitted()
    assert len(evaluator.fitted.nearest.images) == 12
    gaps = (evaluator.fitted.nearest.images[:, None] - evaluator.fitted.real[None]).flatten(2).norm(dim=2)
    assert gaps.min() > 0
