# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.evaluations import halves

from genmonitor import CosineMeanSimilarity, GaussianKernel, MaximumMeanDiscrepancy, PixelPartition, TwoSampleTest
from genmonitor.evaluation.distributed import FailedElsewhereError, SingleProcess
from genmonitor.evaluation.regions.metrics import RegionMetric, RegionMetrics, both_views, distances
from genmonitor.functional import mmd_influence
from genmonitor.functional.mmd_influence import RealSide
from genmonitor.linalg.whitening import Whitening

COLUMNS, KERNEL = PixelPartition.grid((4, 6), 1, 2), GaussianKernel(0.5)
REAL, FAKE = halves(30), halves(24, seed=1, dark=0.7)


def measured(testable=True, seed=3, updates=(FAKE,)):
    metrics = RegionMetrics(RegionMetric(COLUMNS, KERNEL, None), REAL, seed, testable)
    for images in updates:
        metrics.update(images)
    return metrics.compute(SingleProcess())


def fed(metric, fake=FAKE):
    metric.update(REAL, real=True)
    metric.update(fake, real=False)
    return metric.compute()


def test_region_metrics_are_the_plain_ones():
    values, p, *_ = measured()
    expected = {name: float(value) for name, value in fed(CosineMeanSimilarity(COLUMNS, KERNEL)).items()}
    assert p == {name: float(value) for name, value in fed(TwoSampleTest(COLUMNS, seed=3)).items()}
    expected["mmd"] = float(fed(MaximumMeanDiscrepancy(KERNEL)))
    assert values == pytest.approx(expected, rel=1e-6)


def test_region_metrics_forget_the_evaluation_before():
    assert measured(updates=(halves(24, seed=9), FAKE))[0] == measured()[0]


def test_region_metrics_keep_what_a_later_evaluation_is_compared_by():
    influences = measured().influences
    whitening, labels = Whitening.of(REAL), COLUMNS.labels
    seen = [whitening(images) for images in (FAKE, REAL)]
    inside = [labels == label for label in labels.unique()]
    apart = [sum(whitening(images, mask) for mask in inside) for images in (FAKE, REAL)]
    expected = mmd_influence(FAKE, REAL, partition=COLUMNS)
    for found, exact in zip(influences["structure"][1:], expected[1:], strict=True):
        torch.testing.assert_close(found, exact)
    whole, regions = mmd_influence(*seen), mmd_influence(*apart, partition=COLUMNS)
    for found, of_image, of_region in zip(influences["texture"][1:], whole[1:], regions[1:], strict=True):
        torch.testing.assert_close(found, torch.cat([of_image, of_region[1:]]))


def test_distances_are_mmd_in_standard_deviations_of_chance():
    """Between real images and real images they have mean 0 and, as a mean over gammas, a deviation of at most 1."""
    real, found = halves(40, seed=1), []
    side = RealSide.of(real, None, COLUMNS)
    for seed in range(2, 202):
        found.append(distances(side.influence(halves(40, seed=seed)))["image"])
    assert abs(torch.tensor(found).mean()) < 0.5  # the real side stays: its own chance is in all of them
    assert 0.3 < torch.tensor(found).std() < 1.2
    wrong = side.influence(halves(40, seed=300) + 2)
    z = wrong.by_gamma[0] / (2**0.5 * side.kernels.spread[0] * 2 / 40)
    assert distances(wrong)["image"] == pytest.approx(float(z.mean()))
    assert z.mean() > 5


def test_both_views_sum_and_err_on_the_safe_side():
    influences = measured().influences
    total = both_views(influences)
    torch.testing.assert_close(total.mmd, influences["structure"].mmd + influences["texture"].mmd)
    torch.testing.assert_close(total.fake, influences["structure"].fake + influences["texture"].fake)


def test_region_metrics_take_samples_of_another_dtype():
    influences = measured(updates=(FAKE.double(),)).influences
    for view, influence in measured().influences.items():
        torch.testing.assert_close(influences[view].mmd, influence.mmd, atol=1e-5, rtol=1e-5)


def test_too_few_images_are_not_tested():
    found = measured(testable=False)
    assert (found.p, found.influences, found.fake, found.real) == ({}, None, None, None)


class FailsOnce(SingleProcess):
    """Counts how often the processes agree, and fails elsewhere at one of these."""

    def __init__(self, fails_at=None):
        self.calls, self.fails_at = 0, fails_at

    def all_true(self, flag):
        self.calls += 1
        return flag and self.calls != self.fails_at

    def gather(self, value):
        return [value, None if self.fails_at is None else "MemoryError: out of memory"]


def test_every_step_of_an_evaluation_is_agreed_on():
    metrics = RegionMetrics(RegionMetric(COLUMNS, KERNEL, None), REAL, 0, True)
    metrics.update(FAKE)
    counted = FailsOnce()
    metrics.compute(counted)
    for step in range(1, counted.calls + 1):
        again = RegionMetrics(RegionMetric(COLUMNS, KERNEL, None), REAL, 0, True)
        again.update(FAKE)
        with pytest.raises(FailedElsewhereError, match="Process 1: MemoryError: out of memory"):
            again.compute(FailsOnce(step))
        later = FailsOnce()
        again.compute(later)  # gathers anew what not every process had
        assert later.calls == counted.calls - (step == counted.calls) * 2


def test_region_metric_adds_the_unbiased_mmd():
    found = fed(RegionMetric(COLUMNS, KERNEL, None))
    assert float(found["mmd"]) == pytest.approx(float(fed(MaximumMeanDiscrepancy(KERNEL))), rel=1e-6)
