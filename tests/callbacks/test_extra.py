# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from modules import LIGHTNING_SAYS, Linear, MeanGap, digits, fit, loader, plain
from torch import nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.inception import InceptionScore
from torchmetrics.image.kid import KernelInceptionDistance
from torchmetrics.image.mifid import MemorizationInformedFrechetInceptionDistance

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.callbacks.extra import computed, feed

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
    feed(metrics, samples, real)
    return computed(metrics)


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
    for start in (150, 300, 450):
        found = values({"gap": metric}, digits(start, start + 150), digits(0, 150))
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


def test_an_extra_metric_that_fails_skips_the_check_and_does_not_stop_the_run(tmp_path):
    class Broken(MeanGap):
        def compute(self):
            raise RuntimeError("no such feature")

    monitor = plain(extra_metrics={"broken": Broken()}, on_error="warn")
    with pytest.warns(UserWarning, match="no such feature"):
        runner, _ = fit(tmp_path, monitor, val=loader(digits(300, 400)))
    assert runner.current_epoch == 2
    assert monitor.history == []


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
