# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.evaluations import ScriptedCollective
from torch import nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

from genmonitor.distributed import SingleProcess
from genmonitor.evaluation.extra_metrics import ExtraMetrics
from genmonitor.evaluation.regions.values import RegionValues

pytestmark = pytest.mark.filterwarnings("ignore:Metric `Kernel Inception Distance` will save all")


def images(n, seed=0):
    return 2 * torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed)) - 1


class MeanGap(Metric):
    """Difference of the mean pixel; counts its updates with real images."""

    full_state_update = False

    def __init__(self, reset_real_features=True):
        super().__init__()
        self.reset_real_features, self.given = reset_real_features, 0
        for side in ("real", "fake"):
            self.add_state(side, default=[], dist_reduce_fx="cat")

    def update(self, images, real):
        assert len(images) <= 100  # no feature network takes all images at once
        self.given += real
        getattr(self, "real" if real else "fake").append(images.flatten().float())

    def compute(self):
        return torch.cat(self.fake).mean() - torch.cat(self.real).mean()

    def reset(self):
        real = list(self.real)
        super().reset()
        if not self.reset_real_features:
            self.real = real


class Brightness(Metric):
    """A metric of the generated side only, such as the Inception score: mean and deviation."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("seen", default=[], dist_reduce_fx="cat")

    def update(self, images):
        self.seen.append(images.flatten())

    def compute(self):
        values = torch.cat(self.seen)
        return values.mean(), values.std()


class Parts(Brightness):
    def compute(self):
        return {"low": torch.cat(self.seen).min(), "high": torch.cat(self.seen).max()}


def values_of(metrics, samples, real):
    extra = ExtraMetrics(metrics)
    extra.check(samples[:4], real)
    extra.update(samples, real)
    return extra.compute(SingleProcess())


def test_extra_metrics_feed_each_kind_and_name_its_results():
    real, fake = images(50), images(50, seed=1)
    found = values_of(MetricCollection({"Gap": MeanGap(), "Bright": Brightness(), "parts": Parts()}), fake, real)
    assert found == {
        "gap": pytest.approx(float(fake.mean() - real.mean()), abs=1e-6),
        "bright": pytest.approx(float(fake.mean()), abs=1e-6),
        "bright_std": pytest.approx(float(fake.std())),
        "parts_low": float(fake.min()),
        "parts_high": float(fake.max()),
    }
    assert all(type(value) is float for value in found.values())


def test_extra_metrics_name_what_they_computed():
    extra = ExtraMetrics({"Bright": Brightness()})
    extra.update(images(9), images(9))
    extra.compute(SingleProcess())
    assert [(spec.key, spec.error_of) for spec in extra.specs] == [("bright", None), ("bright_std", "bright")]


@pytest.mark.parametrize(("keeps", "updates"), [(True, 1), (False, 3)])
def test_extra_metrics_give_real_images_once_if_kept(keeps, updates):
    metric = MeanGap(reset_real_features=not keeps)
    extra, real = ExtraMetrics({"gap": metric}), images(150)
    for seed in (1, 2, 3):
        fake = images(150, seed)
        extra.update(fake, real)
        found = extra.compute(SingleProcess())
        assert found["gap"] == pytest.approx(float(fake.mean() - real.mean()), abs=1e-6)
    assert metric.given == 2 * updates  # 150 images are two batches


def test_extra_metrics_forget_what_they_were_checked_with():
    metric = MeanGap(reset_real_features=False)
    extra = ExtraMetrics({"gap": metric})
    extra.check(images(4), images(4))
    fake, real = images(9, seed=1), images(9, seed=2)
    extra.update(fake, real)
    assert extra.compute(SingleProcess())["gap"] == pytest.approx(float(fake.mean() - real.mean()), abs=1e-6)
    assert not metric.reset_real_features


class Features(nn.Module):
    """A feature network for torchmetrics: six fixed projections of the image."""

    num_features = 6

    def __init__(self):
        super().__init__()
        self.register_buffer("matrix", torch.randn(64, 6, generator=torch.Generator().manual_seed(0)) / 8)

    def forward(self, images):
        return images.float().flatten(1) @ self.matrix


def test_extra_metrics_feed_torchmetrics_fid():
    fid = FrechetInceptionDistance(feature=Features(), reset_real_features=False, input_img_size=(1, 8, 8))
    samples, others = images(60), images(80, seed=1)
    fake, real = (Features()(side).double() for side in (samples, others))
    gap = (fake.mean(0) - real.mean(0)).square().sum()
    root = torch.linalg.eigvals(fake.T.cov() @ real.T.cov()).sqrt().real.sum()
    expected = float(gap + fake.T.cov().trace() + real.T.cov().trace() - 2 * root)
    assert values_of({"fid": fid}, samples, others)["fid"] == pytest.approx(expected, rel=1e-3)


def test_extra_metrics_feed_torchmetrics_kid():
    kid = KernelInceptionDistance(feature=Features(), subsets=3, subset_size=20)
    assert values_of({"kid": kid}, images(40), images(40, seed=1)).keys() == {"kid", "kid_std"}


class Broken(MeanGap):
    """Fails once it is checked."""

    def __init__(self, where):
        super().__init__()
        self.where, self.updates = where, 0

    def update(self, images, real):
        self.updates += 1
        if self.where == "update" and self.updates > 2:  # the first two are the check's
            raise RuntimeError("no such feature")
        super().update(images, real)

    def compute(self):
        value = super().compute()
        if self.where == "compute":
            raise RuntimeError("no such feature")
        return value.expand(2, 3) if self.where == "a matrix" else value


@pytest.mark.parametrize("where", ["update", "compute", "a matrix"])
def test_extra_metrics_leave_out_one_that_fails(where):
    with pytest.warns(UserWarning, match="`extra_metrics`: broken failed"):
        found = values_of({"broken": Broken(where), "gap": MeanGap()}, images(9), images(9, seed=1))
    assert found.keys() == {"gap"}


def test_extra_metrics_leave_out_what_fails_elsewhere():
    extra = ExtraMetrics({"bright": Brightness()})
    extra.update(images(9), images(9))
    assert extra.compute(ScriptedCollective(other=False)) == {}
    assert extra.specs == []


def test_extra_metrics_check_refuses_images_of_the_wrong_kind():
    class ThreeChannels(MeanGap):
        def update(self, images, real):
            raise ValueError("three channels, please")

    with pytest.raises(ValueError, match=r"`extra_metrics` .* color raised ValueError: three channels, please"):
        ExtraMetrics({"color": ThreeChannels()}).check(images(4), images(4))


@pytest.mark.parametrize(
    "name", ["image", "MMD", "share_1", "cluster_2", "baseline_image", "p", "share", "epoch", "step", "images_seen"]
)
def test_extra_metrics_refuse_names_of_the_evaluators_own(name):
    """A dictionary of a metric called share could give share_1."""
    own = RegionValues(["cluster_1", "cluster_2"], ["image"]).specs
    with pytest.raises(ValueError, match=f"`extra_metrics` .* got '{name}'"):
        ExtraMetrics({name: MeanGap()}).check(images(4), images(4), own=own)
    ExtraMetrics({f"{name}_of_mine": MeanGap()}).check(images(4), images(4), own=own)


@pytest.mark.parametrize("metrics", [MeanGap(), [MeanGap()], {"gap": len}])
def test_extra_metrics_refuse_what_is_no_collection(metrics):
    with pytest.raises(TypeError, match="`extra_metrics` to be a MetricCollection or a dictionary of metrics"):
        ExtraMetrics(metrics)


class Inception(MeanGap):
    """What torchmetrics' metrics do with their own network: three channels, and a range by `normalize`."""

    used_custom_model = False

    def __init__(self, normalize):
        super().__init__()
        self.normalize, self.seen = normalize, []

    def update(self, images, real):
        self.seen.append(images)
        super().update(images, real)


@pytest.mark.parametrize(("normalize", "dtype", "high"), [(True, torch.float32, 1), (False, torch.uint8, 255)])
def test_extra_metrics_scale_images_for_torchmetrics_network(normalize, dtype, high):
    metric, real = Inception(normalize), images(40)
    values_of({"fid": metric}, images(20, seed=1), real)
    assert {(x.dtype, tuple(x.shape[1:])) for x in metric.seen} == {(dtype, (3, 8, 8))}
    assert min(float(x.min()) for x in metric.seen) == 0
    assert max(float(x.max()) for x in metric.seen) == high


class InPlace(Metric):
    """Writes into what it is given, as `images.clamp_()` or a normalization in place does."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, images, real):
        images.zero_()
        self.count += len(images)

    def compute(self):
        return self.count.float()


def test_a_metric_that_works_in_place_changes_no_image():
    metrics = ExtraMetrics({"rude": InPlace()})
    fake, real = torch.rand(5, 1, 4, 4), torch.rand(5, 1, 4, 4)
    before = fake.clone(), real.clone()
    metrics.check(fake, real)
    metrics.update(fake, real)
    assert torch.equal(fake, before[0])
    assert torch.equal(real, before[1])
