# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Linear, MeanGap, digits, fit, loader, plain
from torch import nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.inception import InceptionScore
from torchmetrics.image.kid import KernelInceptionDistance
from torchmetrics.image.mifid import MemorizationInformedFrechetInceptionDistance

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.evaluation.extra_metrics import ExtraMetrics

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:Metric `Kernel Inception Distance` will save all")]


class Features(nn.Module):
    """A feature network for torchmetrics: six fixed projections of the image."""

    num_features = 6

    def __init__(self):
        super().__init__()
        self.register_buffer("matrix", torch.randn(64, 6, generator=torch.Generator().manual_seed(0)) / 8)

    def forward(self, images):
        return images.float().flatten(1) @ self.matrix


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


def values(metrics, samples, real):
    extra = ExtraMetrics(metrics)
    extra.feed(samples, real)
    return extra.compute()


def test_each_kind_of_metric_gets_the_sides_it_takes_and_its_results_get_names():
    real, fake = digits(0, 50), digits(50, 100)
    found = values(MetricCollection({"Gap": MeanGap(), "Bright": Brightness(), "parts": Parts()}), fake, real)
    assert found == {
        "gap": pytest.approx(float(fake.mean() - real.mean()), abs=1e-7),
        "bright": pytest.approx(float(fake.mean()), abs=1e-6),
        "bright_std": pytest.approx(float(fake.std())),
        "parts_low": -1,
        "parts_high": 1,
    }
    assert all(type(value) is float for value in found.values())


@pytest.mark.parametrize("keeps", [True, False])
def test_the_real_side_is_given_once_to_a_metric_that_keeps_it_and_else_each_time(keeps):
    metric = MeanGap(reset_real_features=not keeps)
    extra = ExtraMetrics({"gap": metric})
    for start in (150, 300, 450):
        extra.feed(digits(start, start + 150), digits(0, 150))
        found = extra.compute()
        expected = float(digits(start, start + 150).mean() - digits(0, 150).mean())
        assert found["gap"] == pytest.approx(expected, abs=1e-7)
    assert metric.given == 2 * (1 if keeps else 3)  # 150 images are two batches


def metrics():
    return {
        "fid": FrechetInceptionDistance(feature=Features(), reset_real_features=False, input_img_size=(1, 8, 8)),
        "kid": KernelInceptionDistance(feature=Features(), subsets=3, subset_size=20),
        "gap": MeanGap(),
    }


def test_torchmetrics_own_fid_and_kid_are_fed_from_the_samples_of_each_check(tmp_path):
    monitor = plain(extra_metrics=MetricCollection(metrics()))
    runner, module = fit(tmp_path, monitor, module=Linear(lr=0.0), val=loader(digits(300, 400)), max_epochs=3)
    first, *later = [{name: check[name] for name in ("fid", "kid", "kid_std", "gap")} for check in monitor.history]
    assert [check["gap"] for check in later] == [first["gap"]] * 2
    assert [check["fid"] for check in later] == pytest.approx([first["fid"]] * 2, rel=1e-5)
    assert [check["kid"] for check in later] == [first["kid"]] * 2
    assert float(runner.callback_metrics["cms/fid"]) == pytest.approx(first["fid"])

    with torch.no_grad():
        samples = monitor.draw(runner, module, range(60))
    features = Features()
    fake, real = features(samples).double(), features(monitor._real).double()
    gap = (fake.mean(0) - real.mean(0)).square().sum()
    root = torch.linalg.eigvals(fake.T.cov() @ real.T.cov()).sqrt().real.sum()
    assert first["fid"] == pytest.approx(float(gap + fake.T.cov().trace() + real.T.cov().trace() - 2 * root), rel=1e-3)
    assert first["gap"] == pytest.approx(float(samples.mean() - monitor._real.mean()), abs=1e-6)


class Broken(MeanGap):
    def __init__(self, where):
        super().__init__()
        self.where, self.updates = where, 0

    def update(self, images, real):
        self.updates += 1
        if self.where == "update" and self.updates > 2:  # the first two are tried before training
            raise RuntimeError("no such feature")
        super().update(images, real)

    def compute(self):
        value = super().compute()
        if self.where == "compute":
            raise RuntimeError("no such feature")
        return value.expand(2, 3) if self.where == "a matrix" else value


@pytest.mark.parametrize("where", ["update", "compute", "a matrix"])
def test_an_extra_metric_that_fails_is_left_out_and_the_check_goes_on(tmp_path, where):
    monitor = plain(extra_metrics={"broken": Broken(where), "gap": MeanGap()}, on_error="warn")
    with pytest.warns(UserWarning, match="`extra_metrics`: broken failed"):
        runner, _ = fit(tmp_path, monitor, val=loader(digits(300, 400)))
    assert runner.current_epoch == 2
    assert len(monitor.history) == 2
    assert all("gap" in check and "image" in check and "broken" not in check for check in monitor.history)


def all_four():
    return metrics() | {
        "mifid": MemorizationInformedFrechetInceptionDistance(Features(), reset_real_features=False),
        "inception_score": InceptionScore(Features(), splits=2),
    }


@pytest.mark.filterwarnings("ignore:Metric `InceptionScore` will save all", "ignore:.*MemorizationInformed.* will save")
def test_metrics_that_move_the_global_random_state_leave_training_bit_for_bit_alone(tmp_path):
    weights = []
    for extra in (None, all_four()):
        torch.manual_seed(0)
        monitor = plain(extra_metrics=extra)
        _, module = fit(tmp_path / str(len(weights)), monitor, module=Linear(), val=loader(digits(300, 400)))
        weights.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
    assert torch.equal(*weights)
    named = {"fid", "kid", "kid_std", "gap", "mifid", "inception_score", "inception_score_std"}
    assert named <= monitor.history[0].keys()
    assert named == set(monitor._extra_names)
    monitor.extra_metrics["kid"].update(digits(0, 60), real=False)
    before = torch.get_rng_state()
    monitor.extra_metrics["kid"].compute()
    assert not torch.equal(torch.get_rng_state(), before)  # so there is something to leave alone


def test_the_values_are_drawn_beside_cms(tmp_path):
    monitor = PixelClusterMonitor(
        3, n_samples=60, n_cluster_images=200, on_error="raise", extra_metrics={"gap": MeanGap()}
    )
    fit(tmp_path, monitor, val=loader(digits(300, 400)))
    figure = monitor.figures(digits(0, 60))["extra_metrics"]
    assert [ax.get_title(loc="left").split(",")[0] for ax in figure.axes] == ["CMS", "gap"]
    assert figure.axes[1].lines[0].get_ydata().tolist() == [check["gap"] for check in monitor.history]
    assert (tmp_path / "genmonitor" / "cms_extra_metrics.png").exists()

    assert len(monitor.history) == 2
    assert all("gap" in check and "image" in check and "broken" not in check for check in monitor.history)


def test_an_extra_metric_that_takes_no_such_images_is_refused_before_training(tmp_path):
    class ThreeChannels(MeanGap):
        def update(self, images, real):
            raise ValueError("three channels, please")

    with pytest.raises(ValueError, match=r"`extra_metrics` .* color raised ValueError: three channels, please"):
        fit(tmp_path, plain(extra_metrics={"color": ThreeChannels()}), val=loader(digits(300, 400)))


@pytest.mark.parametrize("name", ["image", "MMD", "share_1", "cluster_2"])
def test_a_name_of_the_monitors_own_is_refused(name):
    with pytest.raises(ValueError, match=f"`extra_metrics` .* got '{name}'"):
        plain(extra_metrics={name: MeanGap()})


class Inception(MeanGap):
    """What torchmetrics' metrics do with their own network: three channels, and a range by `normalize`."""

    used_custom_model = False

    def __init__(self, normalize):
        super().__init__()
        self.normalize, self.seen = normalize, []

    def update(self, images, real):
        self.seen.append((images.dtype, tuple(images.shape[1:]), float(images.min()), float(images.max())))
        super().update(images.float(), real)


@pytest.mark.parametrize(("normalize", "dtype", "high"), [(True, torch.float32, 1), (False, torch.uint8, 255)])
def test_torchmetrics_own_network_gets_three_channels_in_the_range_it_expects(normalize, dtype, high):
    metric = Inception(normalize)
    extra = ExtraMetrics({"fid": metric})
    extra.prepare(digits(0, 20), digits(20, 60))
    extra.feed(digits(0, 20), digits(20, 60))
    assert {(kind, shape) for kind, shape, _, _ in metric.seen} == {(dtype, (3, 8, 8))}
    assert (min(low for *_, low, _ in metric.seen), max(top for *_, top in metric.seen)) == (0, high)
