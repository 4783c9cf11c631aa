# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.evaluations import halves

from genmonitor import CosineMeanSimilarity, GaussianKernel, LaplacianKernel, MaximumMeanDiscrepancy, PixelPartition
from genmonitor.evaluation.distributed import FailedElsewhereError, SingleProcess
from genmonitor.evaluation.regions.metrics import Compared, RegionMetrics, both_views, distances
from genmonitor.functional import mmd_influence
from genmonitor.functional.discrepancy import view_kernels, views_state
from genmonitor.functional.permutation import LEVEL
from genmonitor.linalg.whitening import Whitening

COLUMNS, KERNEL = PixelPartition.grid((4, 6), 1, 2), GaussianKernel(0.5)
REAL, FAKE, TRAINING = halves(30), halves(24, seed=1, dark=0.7), halves(60, seed=2)


def fixed(kernel=KERNEL, block_size=None, seed=3, training=TRAINING):
    views = {view: of.balanced(training) for view, of in view_kernels([training], COLUMNS).items()}
    return Compared(COLUMNS, kernel, views_state(views), block_size, seed)


def metrics_of(testable=True, real=REAL, **given):
    return RegionMetrics(fixed(**given), real, testable)


def measured(testable=True, updates=(FAKE,), **given):
    metrics = metrics_of(testable, **given)
    for images in updates:
        metrics.update(images)
    return metrics.compute(SingleProcess())


def fed(metric, fake=FAKE):
    metric.update(REAL, real=True)
    metric.update(fake, real=False)
    return metric.compute()


@pytest.mark.parametrize("size", [24, 120])  # samples, and blocks of two of them
@pytest.mark.parametrize(
    ("kernel", "block_size"), [(KERNEL, None), (KERNEL, 6), (GaussianKernel(30.0), None), (LaplacianKernel(0.3), None)]
)
def test_values_are_those_of_the_plain_metrics(kernel, block_size, size):
    real, fake = halves(size + 6), halves(size, seed=1, dark=0.7)
    metrics = metrics_of(kernel=kernel, block_size=block_size, real=real)
    metrics.update(fake)
    plain = {"kernel": kernel, "block_size": block_size}
    cms, mmd = CosineMeanSimilarity(COLUMNS, **plain), MaximumMeanDiscrepancy(**plain)
    for metric in (cms, mmd):
        metric.update(real, real=True)
        metric.update(fake, real=False)
    expected = {name: float(value) for name, value in (cms.compute() | {"mmd": mmd.compute()}).items()}
    assert metrics.compute(SingleProcess()).values == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_p_values_find_what_differs_and_hold_their_level():
    p = measured().p
    assert p["cluster_2"] <= p["image"] <= 0.01 < LEVEL < p["cluster_1"]
    found = [measured(updates=(halves(24, seed=seed),), seed=seed).p for seed in range(100, 160)]
    assert sum(p["image"] <= LEVEL for p in found) <= 8  # of Binomial(60, 0.05), with a chance of 0.003
    assert sum(min(p["cluster_1"], p["cluster_2"]) <= LEVEL for p in found) <= 8


def test_region_metrics_forget_the_evaluation_before():
    assert measured(updates=(halves(24, seed=9), FAKE))[:2] == measured()[:2]


@pytest.mark.parametrize("size", [24, 120])
def test_region_metrics_keep_what_a_later_evaluation_is_compared_by(size):
    """The views of real images that are not compared; of the same images `mmd_influence` has the same ones."""
    real, fake = halves(size), halves(size, seed=1, dark=0.7)
    metrics = metrics_of(real=real, training=real)
    metrics.update(fake)
    influences, whitening = metrics.compute(SingleProcess()).influences, Whitening.of(real)
    seen = [whitening(images) for images in (fake, real)]
    inside = [COLUMNS.labels == label for label in COLUMNS.labels.unique()]
    apart = [sum(whitening(images, mask) for mask in inside) for images in (fake, real)]
    expected = mmd_influence(fake, real, partition=COLUMNS)
    for found, exact in zip(influences["structure"][1:], expected[1:], strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-4, atol=2e-6)
    whole, regions = mmd_influence(*seen), mmd_influence(*apart, partition=COLUMNS)
    for found, of_image, of_region in zip(influences["texture"][1:], whole[1:], regions[1:], strict=True):
        torch.testing.assert_close(found, torch.cat([of_image, of_region[1:]]), rtol=1e-4, atol=2e-6)


def test_views_are_fixed_by_other_real_images_alone():
    first, second = (measured(updates=(halves(24, seed=seed),)).influences for seed in (5, 6))
    for view in first:
        assert torch.equal(first[view].gamma, second[view].gamma)
        assert torch.equal(first[view].real_mean, second[view].real_mean)
    other = measured(training=halves(60, seed=4)).influences
    assert not torch.equal(other["texture"].gamma, first["texture"].gamma)


def test_distances_are_mmd_in_standard_deviations_of_chance():
    """Between real images and real images they have mean 0 and, as a mean over gammas, a deviation of at most 1."""
    metrics, found = metrics_of(real=halves(40, seed=1)), []
    for seed in range(2, 202):
        metrics.update(halves(40, seed=seed))
        found.append(distances(metrics.compute(SingleProcess()).influences["structure"])["image"])
    assert abs(torch.tensor(found).mean()) < 0.5  # the real side stays: its own chance is in all of them
    assert 0.3 < torch.tensor(found).std() < 1.2
    metrics.update(halves(40, seed=300) + 2)
    wrong = metrics.compute(SingleProcess()).influences["structure"]
    z = wrong.by_gamma[0] / (2**0.5 * fixed().views["structure"]["spread"][0] * 2 / 40)
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
    metrics = metrics_of()
    metrics.update(FAKE)
    counted = FailsOnce()
    metrics.compute(counted)
    for step in range(1, counted.calls + 1):
        again = metrics_of()
        again.update(FAKE)
        with pytest.raises(FailedElsewhereError, match="Process 1: MemoryError: out of memory"):
            again.compute(FailsOnce(step))
        later = FailsOnce()
        again.compute(later)  # gathers anew what not every process had
        assert later.calls == counted.calls - (step == counted.calls) * 2
