# SPDX-License-Identifier: Apache-2.0
import pytest
from _helpers.golden import digits

from genmonitor import MaximumMeanDiscrepancy
from genmonitor.functional import maximum_mean_discrepancy


def fed(metric, fake, real, batch: int):
    for name, side in (("fake", fake), ("real", real)):
        for samples in side.split(batch):
            metric.update(samples, real=name == "real")
    return metric


def test_unbiased_is_the_default_and_blocks_are_passed_on():
    fake, real = digits()[:60], digits()[60:140]
    for options in ({}, {"block_size": 20}, {"unbiased": False}):
        metric = fed(MaximumMeanDiscrepancy(**options), fake, real, 33)
        assert float(metric.compute()) == pytest.approx(float(maximum_mean_discrepancy(fake, real, **options)))


def test_a_lower_value_is_better():
    assert MaximumMeanDiscrepancy.higher_is_better is False
    fake, real = digits()[:60], digits()[60:140]
    near = fed(MaximumMeanDiscrepancy(), fake, real, 60).compute()
    far = fed(MaximumMeanDiscrepancy(), fake + 0.5, real, 60).compute()
    assert near < far
