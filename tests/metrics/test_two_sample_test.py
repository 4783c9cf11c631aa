# SPDX-License-Identifier: Apache-2.0
import torch
from _helpers.golden import FAKE, REAL, digits

from genmonitor import TwoSampleTest
from genmonitor.functional import two_sample_test


def sides() -> tuple[torch.Tensor, torch.Tensor]:
    images = digits().reshape(-1, 1, 8, 8).float()
    return images[FAKE][:60], images[REAL][:70]


def test_arguments_are_passed_on():
    fake, real = sides()
    metric = TwoSampleTest(gammas=[1, 4], num_permutations=59, seed=5, reset_real_features=False)
    metric.update(real, real=True)
    for samples in (fake, fake + 0.1):
        metric.reset()
        metric.update(samples, real=False)
        expected = two_sample_test(samples, real, gammas=(1, 4), num_permutations=59, seed=5)
        assert metric.compute() == expected
