# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.golden import FAKE, REAL, digits

from genmonitor import PixelPartition, TwoSampleTest
from genmonitor.functional import two_sample_test

QUARTERS = PixelPartition.grid((8, 8), 2, 2)


def sides() -> tuple[torch.Tensor, torch.Tensor]:
    images = digits().reshape(-1, 1, 8, 8).float()
    return images[FAKE][:60], images[REAL][:70]


@pytest.mark.parametrize("batch", [60, 17, 1])
def test_batches_do_not_matter(batch):
    fake, real = sides()
    metric = TwoSampleTest(QUARTERS, num_permutations=39, seed=2)
    for side, samples in ((True, real), (False, fake)):
        for some in samples.split(batch):
            metric.update(some, real=side)
    assert metric.compute() == two_sample_test(fake, real, partition=QUARTERS, num_permutations=39, seed=2)


def test_arguments_are_passed_on():
    fake, real = sides()
    metric = TwoSampleTest(gammas=[1, 4], num_permutations=59, seed=5, reset_real_features=False)
    metric.update(real, real=True)
    for samples in (fake, fake + 0.1):
        metric.reset()
        metric.update(samples, real=False)
        expected = two_sample_test(samples, real, gammas=(1, 4), num_permutations=59, seed=5)
        assert metric.compute() == expected


def test_too_few_samples_are_named():
    metric = TwoSampleTest()
    metric.update(torch.rand(7, 3), real=False)
    metric.update(torch.rand(9, 3), real=True)
    with pytest.raises(ValueError, match="`fake` to hold at least 8 samples, but got 7"):
        metric.compute()
