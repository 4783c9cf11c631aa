# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.evaluations import halves

from genmonitor import CosineMeanSimilarity, GaussianKernel, LaplacianKernel, MaximumMeanDiscrepancy, PixelPartition
from genmonitor.distributed import FailedElsewhereError, SingleProcess
from genmonitor.evaluation.regions.metrics import Compared, RealRegions, RegionMetrics, distances
from genmonitor.functional import mmd_influence, pair_sums
from genmonitor.functional.discrepancy import MULTIPLIERS, view_kernels, views_state
from genmonitor.functional.permutation import LEVEL
from genmonitor.functional.relative_similarity import MMDInfluence
from genmonitor.linalg.whitening import Whitening

COLUMNS, KERNEL = PixelPartition.grid((4, 6), 1, 2), GaussianKernel(0.5)
REAL, FAKE, TRAINING = halves(30), halves(24, seed=1, dark=0.7), halves(60, seed=2)


def fixed(kernel=KERNEL, block_size=None, seed=3, training=TRAINING):
    views = {view: of.balanced(training) for view, of in view_kernels([training], COLUMNS).items()}
    return Compared(COLUMNS, kernel, views_state(views), block_size, seed)


def metrics_of(testable=True, real=REAL, **given):
    return RegionMetrics(fixed(**given), real, testable)


def measured(testable=True, updates=(FAKE,), real=REAL, **given):
    metrics = metrics_of(testable, real, **given)
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
    expected["dependent_regions"] = expected.pop("violations")
    assert metrics.compute(SingleProcess()).values == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_p_values_find_what_differs_and_hold_their_level():
    p = measured().p
    assert p["cluster_2"] <= p["image"] <= 0.01 < LEVEL < p["cluster_1"]
    found = [measured(updates=(halves(24, seed=seed),), seed=seed).p for seed in range(100, 160)]
    assert sum(p["image"] <= LEVEL for p in found) <= 8  # of Binomial(60, 0.05), with a chance of 0.003
    assert sum(min(p["cluster_1"], p["cluster_2"]) <= LEVEL for p in found) <= 8


def test_region_metrics_forget_the_evaluation_before():
    assert measured(updates=(halves(24, seed=9), FAKE))[:2] == measured()[:2]


def view_influences(fake, real, by):
    """Influences in both views, whose images are whitened by others, by the plain function."""
    whitening = Whitening.of(by)
    seen = [whitening(images) for images in (fake, real)]
    inside = [COLUMNS.labels == label for label in COLUMNS.labels.unique()]
    apart = [sum(whitening(images, mask) for mask in inside) for images in (fake, real)]
    whole, regions = mmd_influence(*seen), mmd_influence(*apart, partition=COLUMNS)
    texture = [torch.cat([of_image, of_region[1:]]) for of_image, of_region in zip(whole[1:], regions[1:], strict=True)]
    return mmd_influence(fake, real, partition=COLUMNS), MMDInfluence(regions[0], *texture)


@pytest.mark.parametrize("size", [24, 120])
def test_both_views_count_by_what_they_vary_by_among_real_images(size):
    """The views of real images that are not compared; of the same images `mmd_influence` has the same ones."""
    real, fake = halves(size), halves(size, seed=1, dark=0.7)
    metrics = metrics_of(real=real, training=real)
    metrics.update(fake)
    found = metrics.compute(SingleProcess())
    structure, texture = view_influences(fake, real, real)
    varies = {view: tensors["deviation"] for view, tensors in fixed(training=real).views.items()}
    count = varies["structure"] / varies["texture"]
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found.influence.mmd, structure.mmd + count * texture.mmd, **close)
    torch.testing.assert_close(found.influence.fake, structure.fake + count[:, None] * texture.fake, **close)
    torch.testing.assert_close(found.influence.real, structure.real + count[:, None] * texture.real, **close)
    second_order = structure.second_order + count**2 * texture.second_order
    torch.testing.assert_close(found.influence.second_order, second_order, rtol=1e-3, atol=1e-9)
    for view, influence in (("structure", structure), ("texture", texture)):
        assert found.distances[view] == pytest.approx(distances(influence), rel=1e-3)


@pytest.mark.parametrize("size", [24, 120])
def test_error_is_the_root_of_the_biased_mmd_of_both_views(size):
    real, fake = halves(size + 6), halves(size, seed=1, dark=0.7)
    found, of = measured(updates=(fake,), real=real), fixed().views
    parts = {"image": slice(0, 6), "cluster_1": slice(0, 3), "cluster_2": slice(3, 6)}
    for group, (name, columns) in enumerate(parts.items()):
        squared = 0.0
        for view, tensors in of.items():
            sides = [images if view == "structure" else whitened(images, columns) for images in (fake, real)]
            x, y = (side[..., columns].flatten(1).double() for side in sides)
            biased = 0.0
            for multiplier, weight in zip(MULTIPLIERS, tensors["mixture"][group].tolist(), strict=True):
                kernel = GaussianKernel(float(tensors["unit"][group]) * multiplier)
                biased += weight * float(kernel(x, x).mean() + kernel(y, y).mean() - 2 * kernel(x, y).mean())
            squared += biased * float(of["structure"]["deviation"][group] / tensors["deviation"][group])
        assert found.error[name] == pytest.approx(squared**0.5, rel=1e-4)


def whitened(images, columns):
    inside = torch.zeros(4, 6, dtype=torch.bool)
    inside[:, columns] = True
    return Whitening.of(TRAINING)(images, inside)


def test_real_images_have_an_error_of_what_their_number_makes_of_it():
    """Means of biased MMD² are (1/n + 1/m) (1 - E k): of a quarter of the images the error is twice as large."""
    few, many = [], []
    for n, errors in ((40, few), (160, many)):
        for seed in range(300, 330, 2):
            errors.append(measured(updates=(halves(n, seed=seed),), real=halves(n, seed=seed + 1)).error["image"])
    assert sum(few) / sum(many) == pytest.approx(2, rel=0.1)


def test_views_are_fixed_by_other_real_images_alone():
    first, second, other = (
        measured(updates=(halves(24, seed=seed),), training=halves(60, seed=by)).influence
        for seed, by in ((5, 2), (6, 2), (6, 4))
    )
    assert torch.equal(first.gamma, second.gamma)
    assert torch.equal(first.real_mean, second.real_mean)
    assert not torch.equal(other.gamma, first.gamma)


def test_distances_are_mmd_in_standard_deviations_of_chance():
    """Between real images and real images they have mean 0 and, as a mean over gammas, a deviation of at most 1."""
    metrics, found = metrics_of(real=halves(40, seed=1)), []
    for seed in range(2, 202):
        metrics.update(halves(40, seed=seed))
        found.append(metrics.compute(SingleProcess()).distances["structure"]["image"])
    assert abs(torch.tensor(found).mean()) < 0.5  # the real side stays: its own chance is in all of them
    assert 0.3 < torch.tensor(found).std() < 1.2
    wrong = mmd_influence(halves(40, seed=300) + 2, REAL)
    z = wrong.by_gamma[0] / wrong.by_chance[0]
    assert distances(wrong)["image"] == pytest.approx(float(z.mean()))
    assert z.mean() > 5


def test_region_metrics_take_samples_of_another_dtype():
    wide = measured(updates=(FAKE.double(),))
    assert wide.error == pytest.approx(measured().error, rel=1e-5)


def test_too_few_images_are_not_tested():
    found = measured(testable=False)
    assert found.error == pytest.approx(measured().error, rel=1e-6)
    assert (found.p, found.distances, found.influence, found.fake, found.real) == ({}, {}, None, None, None)


@pytest.mark.parametrize("draws", [[[3, 1, 4, 0, 5, 9], [2, 6, 8, 7, 10, 11]], [[3, 3, 3, 0, 0, 1], [5] * 6]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("kernel", "block_size"), [(KERNEL, None), (KERNEL, 3), (GaussianKernel(30.0), None), (LaplacianKernel(0.3), 2)]
)
def test_draws_in_one_pass_give_what_each_gives_alone(kernel, block_size, dtype, draws, monkeypatch):
    monkeypatch.setattr(pair_sums, "STRIP", 500)  # several strips
    compared, pool = RealRegions(fixed(kernel, block_size), REAL.to(dtype)), halves(12, seed=4).to(dtype)
    found = [*compared.of_draws(pool, torch.tensor(draws))]
    alone = [compared.measure(pool[draw], testable=False) for draw in draws]
    for one, other in zip(found, alone, strict=True):
        assert one.values == pytest.approx(other.values, rel=1e-5, abs=1e-8)
        assert one.error == pytest.approx(other.error, rel=1e-5, abs=1e-8)


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
