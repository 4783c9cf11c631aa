# SPDX-License-Identifier: Apache-2.0
"""What PixelClusterMonitor finds, says and writes, on images whose true answer is known and on digits."""

import logging
import re

import numpy as np
import pytest
import torch
from _helpers.modules import (
    LIGHTNING_SAYS,
    PLANTED_REGIONS,
    Linear,
    digits,
    fit,
    fit_planted,
    loader,
    measured,
    plain,
    trainer,
)
from planted import planted_labels
from sklearn.metrics import adjusted_rand_score
from torch import nn
from torch.nn.functional import avg_pool2d
from torch.utils.data import DataLoader

from genmonitor import GaussianKernel, LaplacianKernel, PixelPartition
from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.evaluation.data.reference import assign_roles

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:Plain. there is no validation data")]

SPOILED_FROM = 2


def planted_monitor(**settings):
    return plain(**({"n_clusters": 4, "n_samples": 400, "n_cluster_images": 1000} | settings))


@pytest.mark.parametrize("spoiled", [1, 2, 3, 4])
def test_the_planted_regions_are_found_and_the_spoiled_one_is_named_and_no_other(tmp_path, spoiled, caplog):
    said = []
    monitor = planted_monitor(on_alert=said.append)
    with (
        pytest.warns(UserWarning, match=f"cluster_{spoiled} fell out of its baseline") as warned,
        caplog.at_level(logging.INFO),
    ):
        fit_planted(tmp_path, monitor, spoiled, SPOILED_FROM)

    assert adjusted_rand_score(planted_labels().flatten(), monitor.partition.labels.flatten()) == 1
    assert torch.equal(monitor.partition.labels, planted_labels())  # numbered by falling size

    low = {name: monitor.baseline[name][0] for name in PLANTED_REGIONS}
    below = [[name for name in PLANTED_REGIONS if check[name] < low[name]] for check in monitor.history]
    assert below == [[]] * SPOILED_FROM + [[f"cluster_{spoiled}"]] * 3
    assert all(check[f"share_{spoiled}"] >= 0.9 for check in monitor.history[SPOILED_FROM:])
    assert all(sum(v for k, v in check.items() if "share" in k) == pytest.approx(1) for check in monitor.history)

    assert [re.findall("cluster_. fell|epoch .", text) for text in said] == [[f"cluster_{spoiled} fell", "epoch 3"]]
    alerts = [str(w.message) for w in warned if "fell out" in str(w.message)]
    assert alerts == said
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("epoch ")]
    assert [line[:7] for line in lines] == [f"epoch {epoch}" for epoch in range(5)]
    assert all(f"most to blame: cluster_{spoiled}," in line for line in lines[SPOILED_FROM:])


@pytest.mark.parametrize("spoiled", [2, 4])
def test_image_and_product_agree_to_what_the_yardstick_leaves_open(tmp_path, spoiled):
    monitor = planted_monitor(on_alert=None)
    with pytest.warns(UserWarning, match="fell out"):
        fit_planted(tmp_path, monitor, spoiled, SPOILED_FROM)
    low, _, high = monitor.baseline["image"]
    assert all(abs(check["image"] - check["product"]) < high - low for check in monitor.history)
    assert monitor.history[-1]["image"] < low - 5 * (high - low)
    assert [check["violations"] for check in monitor.history] == [0] * 5


def test_without_a_spoiled_region_nothing_is_below_and_nothing_is_said(tmp_path):
    said = []
    monitor = planted_monitor(on_alert=said.append)
    fit_planted(tmp_path, monitor, None, SPOILED_FROM, epochs=3)
    assert said == []
    assert all(
        check[name] >= monitor.baseline[name][0] for check in monitor.history for name in ["image", *PLANTED_REGIONS]
    )


def test_the_end_of_fit_prints_the_regions_worst_first_with_when_each_was_best(tmp_path, capsys):
    monitor = planted_monitor()
    with pytest.warns(UserWarning, match="fell out"):
        fit_planted(tmp_path, monitor, 3, SPOILED_FROM)
    rows = [line for line in capsys.readouterr().out.splitlines() if re.match("cluster_|constant", line)]
    assert rows[0].split()[0] == "cluster_3"
    assert sorted(row.split()[0] for row in rows) == PLANTED_REGIONS
    sizes = dict(
        zip(["constant", *PLANTED_REGIONS[:4]], planted_labels().unique(return_counts=True)[1].tolist(), strict=True)
    )
    assert {row.split()[0]: int(row.split()[1]) for row in rows} == sizes
    assert re.search(r"cluster_3 +32 +0\.9\d+ .* 99 % +0\.99\d* at epoch 0", rows[0])


# the value itself


def reference(fake, real, gamma, columns=slice(None)):
    """Return CMS by its formula, one pair of images at a time."""
    x, y = (np.asarray(images, dtype=np.float64).reshape(len(images), -1)[:, columns] for images in (fake, real))

    def mean(a, b):
        return np.mean([[np.exp(-gamma * np.sum((u - v) ** 2)) for v in b] for u in a])

    return mean(x, y) / np.sqrt(mean(x, x) * mean(y, y))


def drawn(monitor, runner, module):
    with torch.no_grad():
        return monitor.draw(runner, module, range(monitor.n_samples))


def test_logged_values_are_those_of_the_formula(tmp_path):
    monitor = plain(n_samples=30)
    runner, module = fit(tmp_path, monitor, val=loader(digits(300, 400)))
    samples, gamma, check = drawn(monitor, runner, module), monitor.kernel.gamma, monitor.history[-1]
    assert check["image"] == pytest.approx(reference(samples, monitor._real, gamma), rel=1e-5)
    for name, label in monitor.partition.regions().items():
        columns = (monitor.partition.labels == label).flatten().numpy()
        assert check[name] == pytest.approx(reference(samples, monitor._real, gamma, columns), rel=1e-5)
    training = digits(0, 300)
    assert {tuple(image.flatten().tolist()) for image in monitor._real} <= {
        tuple(image.flatten().tolist()) for image in digits(300, 400)
    }
    chosen = assign_roles(runner, None, None, 200, 30, None, 0).for_clusters
    squares = torch.cdist(training[chosen].flatten(1).double(), training[chosen].flatten(1).double()).square()
    upper = squares[tuple(torch.triu_indices(200, 200, 1))]
    assert gamma == pytest.approx(1 / float(upper.quantile(0.5)), rel=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": LaplacianKernel()},
        {"kernel": GaussianKernel(gamma=0.02)},
        {"block_size": 20},
        {"patch_size": 2},
        {"n_clusters": None},
        {"n_clusters": 1},
        {"partition": PixelPartition.from_mask(torch.arange(64).view(8, 8) % 5)},
        {"sample_batch_size": 7},
        {"n_samples": 2},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Plain. the baseline")
def test_every_setting_gives_finite_values_below_a_perfect_generators(tmp_path, settings):
    monitor = plain(**settings)
    fit(tmp_path, monitor, val=loader(digits(300, 400)), max_epochs=1)
    (check,) = monitor.history
    assert all(np.isfinite(value) for value in check.values())
    assert 0 < check["image"] < monitor.baseline["image"][0]
    if monitor.n_clusters is not None:
        assert monitor.partition.num_clusters == monitor.n_clusters
    assert monitor.partition.patch_size == settings.get("patch_size", 1)
    if "partition" in settings:
        assert monitor.partition == settings["partition"]
    if settings.get("kernel") == GaussianKernel(gamma=0.02):
        assert monitor.kernel.gamma == 0.02


def test_the_size_of_the_batches_changes_nothing(tmp_path):
    several, single = plain(sample_batch_size=7), plain(sample_batch_size=60)
    for monitor in (several, single):
        torch.manual_seed(0)
        fit(tmp_path, monitor, module=Linear(lr=0.0), val=loader(digits(300, 400)), max_epochs=1)
    assert measured(several) == [pytest.approx(check, rel=1e-5) for check in measured(single)]


def test_whole_numbers_are_compared_with_a_generator_in_0_to_1(tmp_path):
    pixels = (digits(0, 300) * 8 + 8).mul(15).to(torch.uint8)
    batches = DataLoader([{"image": image, "label": i % 3} for i, image in enumerate(pixels)], 100)
    monitor = plain(sample_fn=lambda module, n: module.sample(n) / 2 + 0.5, real_images=batches)
    fit(tmp_path, monitor, max_epochs=1)
    assert (float(monitor._real.min()), float(monitor._real.max())) == (0, pytest.approx(240 / 255))
    assert monitor._range == (0, pytest.approx(240 / 255))
    assert monitor.history[0]["images_seen"] == 300


class Pooled:
    """A site encoder: 2×2 means, as a VAE's latents would be."""

    def __call__(self, images):
        assert len(images) <= 100
        return avg_pool2d(images, 2)


@pytest.mark.filterwarnings("ignore:Pixel")
def test_with_a_site_encoder_regions_live_on_its_map_and_figures_on_the_image(tmp_path):
    monitor = PixelClusterMonitor(3, n_samples=60, n_cluster_images=200, site_encoder=Pooled(), on_error="raise")
    runner, module = fit(tmp_path, monitor, val=loader(digits(300, 400)), max_epochs=1)
    assert monitor.partition.image_size == (4, 4)
    assert monitor.partition.num_clusters == 3
    expected = reference(
        *(avg_pool2d(x, 2) for x in (drawn(monitor, runner, module), monitor._real)), monitor.kernel.gamma
    )
    assert monitor.history[0]["image"] == pytest.approx(expected, rel=1e-5)
    assert torch.equal(
        monitor._image_labels(), monitor.partition.labels.repeat_interleave(2, 0).repeat_interleave(2, 1)
    )
    assert {path.name.split("_epoch")[0].removesuffix(".png") for path in (tmp_path / "genmonitor").glob("*.png")} == {
        "cms_clusters",
        "cms_clusters_over_average",
        "cms_cka",
        "cms_curves",
        "cms_image_and_product",
        "cms_samples",
    }


def test_a_second_fit_of_the_same_trainer_goes_on_with_the_curve(tmp_path):
    monitor, module = plain(), Linear()
    runner = trainer(tmp_path, monitor, max_epochs=2)
    runner.fit(module, loader(digits(0, 300)), loader(digits(300, 400)))
    partition = monitor.partition
    runner.fit_loop.max_epochs = 3
    runner.fit(module, loader(digits(0, 300)), loader(digits(300, 400)))
    assert [check["epoch"] for check in monitor.history] == [0, 1, 2]
    assert monitor.partition is partition


def test_other_images_make_everything_anew_and_the_same_go_on(tmp_path):
    monitor = plain()
    images = digits(0, 300)
    fit(tmp_path, monitor, train=loader(images), val=loader(digits(300, 400)))
    partition, gamma, checks = monitor.partition, monitor.kernel.gamma, len(monitor.history)
    fit(tmp_path, monitor, train=loader(images), val=loader(digits(300, 400)))
    assert (monitor.partition, len(monitor.history)) == (partition, 2 * checks)
    others = digits(400, 700).transpose(2, 3)
    with pytest.warns(UserWarning, match="Plain was used with other images before"):
        fit(tmp_path, monitor, train=loader(others), val=loader(digits(700, 800).transpose(2, 3)))
    assert monitor.partition != partition
    assert monitor.kernel.gamma != gamma
    assert len(monitor.history) == checks


def test_an_encoder_that_is_a_module_is_run_in_eval_mode_and_left_as_it_was(tmp_path):
    encoder = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.5))
    monitor = plain(site_encoder=encoder)
    fit(tmp_path, monitor, module=Linear(lr=0.0), val=loader(digits(300, 400)))
    assert encoder.training
    assert float(encoder[0].num_batches_tracked) == 0
    assert monitor.history[0]["image"] == monitor.history[1]["image"]
