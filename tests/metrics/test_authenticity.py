# SPDX-License-Identifier: Apache-2.0
"""Authenticity; what every metric owes torchmetrics and two processes are in test_citizens and test_sync."""

import torch

from genmonitor import Authenticity
from genmonitor.functional import authenticity


def draw(n, seed):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


REAL = draw(60, 0)
FAKE = torch.cat([draw(10, 1) + 20, REAL[[7, 3]] + torch.tensor([[1e-3], [1e-5]]), draw(10, 2) - 20])


def fed(metric):
    for batch in REAL.split(25):
        metric.update(batch, real=True)
    for batch in FAKE.split(9):
        metric.update(batch, real=False)
    return metric


def test_batches_give_the_share_and_the_copies_are_named_the_closest_first():
    metric = fed(Authenticity())
    assert metric.compute() == authenticity(FAKE, REAL) == 20 / 22
    assert metric.copies().tolist() == [[11, 3], [10, 7]]


def test_without_copies_none_is_named():
    metric = Authenticity()
    metric.update(REAL, real=True)
    metric.update(REAL[:5] + 100, real=False)
    assert metric.copies().shape == (0, 2)
