# SPDX-License-Identifier: Apache-2.0
"""PixelClusterMonitor on images whose true answer is known and on digits."""

import contextlib
import functools
import io
import logging
import re
import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from _helpers.logged import read_tensorboard
from _helpers.modules import (
    LIGHTNING_SAYS,
    PLANTED_REGIONS,
    Linear,
    digits,
    drawn,
    fit,
    fit_planted,
    loader,
    plain,
)
from _helpers.slow import slow_but
from _pytest.logging import LogCaptureHandler
from lightning.pytorch.loggers import TensorBoardLogger
from planted import planted_labels
from sklearn.metrics import adjusted_rand_score
from torch import nn
from torch.nn.functional import avg_pool2d
from torch.utils.data import DataLoader

from genmonitor import PixelPartition
from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.findings.finding import headlines
from genmonitor.images.image_set import ImageSet
from genmonitor.images.split import split_reference

pytestmark = [*LIGHTNING_SAYS, pytest.mark.filterwarnings("ignore:Plain. there is no validation data")]

SPOILED_FROM = 2


@dataclass
class Planted:
    """A run on planted images, and all that it said."""

    monitor: PixelClusterMonitor
    alerts: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    printed: str = ""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Return a function that runs five epochs and spoils a region, none for None; it runs once for each."""

    @functools.cache
    def run(spoiled):
        alerts, handler, root = [], LogCaptureHandler(), logging.getLogger()
        settings = {"n_clusters": 4, "n_samples": 400, "n_cluster_images": 1000}
        out = Planted(plain(**settings, on_alert=alerts.append), alerts)
        level = root.level
        root.setLevel(logging.INFO)
        root.addHandler(handler)
        with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(io.StringIO()) as printed:
            warnings.simplefilter("always")
            try:
                fit_planted(tmp_path_factory.mktemp("planted"), out.monitor, spoiled, SPOILED_FROM)
            finally:
                root.removeHandler(handler)
                root.setLevel(level)
        out.warned, out.printed = [str(w.message) for w in warned], printed.getvalue()
        out.logged = [record.getMessage() for record in handler.records]
        return out

    return run


@pytest.mark.parametrize("spoiled", slow_but([1, 2, 3, 4], 3))
def test_planted_regions_are_found_and_the_spoiled_one_named(planted, spoiled):
    run = planted(spoiled)
    monitor, said = run.monitor, run.alerts

    assert adjusted_rand_score(planted_labels().flatten(), monitor.partition.labels.flatten()) == 1
    assert torch.equal(monitor.partition.labels, planted_labels())  # numbered by falling size

    low = {name: monitor.baseline[name][0] for name in PLANTED_REGIONS}
    below = [[name for name in PLANTED_REGIONS if record[name] < low[name]] for record in monitor.history]
    assert below == [[]] * SPOILED_FROM + [[f"cluster_{spoiled}"]] * 3
    assert all(record[f"share_{spoiled}"] >= 0.9 for record in monitor.history[SPOILED_FROM:])
    assert all(sum(v for k, v in record.items() if "share" in k) == pytest.approx(1) for record in monitor.history)

    place = PixelPartition(planted_labels()).location(spoiled)
    expected = [[f"cluster_{spoiled} ({place}) got worse", "since epoch 2", "at epoch 3"]]
    assert [re.findall(r"cluster_. \(.*\) got worse|since epoch .|at epoch 3", text) for text in said] == expected
    assert re.search(rf"cluster_{spoiled} \(.*\) got worse since epoch 2: error ratio [\d.]+ × at epoch 3, ", said[0])
    assert [text for text in run.warned if "got worse" in text] == [f"Plain: {text}" for text in said]
    distance = [record[f"structure_{spoiled}"] for record in monitor.history]  # the curve that the alert names
    assert min(distance[SPOILED_FROM:]) > 2 * max(distance[:SPOILED_FROM])
    lines = [line for line in run.logged if line.startswith("epoch ")]
    fine = ["no difference beyond chance" in line for line in lines]
    assert fine == [True] * SPOILED_FROM + [False] * 3
    diagnosed = [finding for finding in monitor.findings if not finding.text.startswith("Visibly worse than")]
    first, *others = headlines(diagnosed)
    if spoiled == 1:  # half the image without its dark ones: these images are too rare
        assert first.kinds[0].name == "modes"
    else:
        assert first.area.mask[planted_labels() == spoiled].float().mean() > 0.8
        assert first.area.mask[planted_labels() != spoiled].float().mean() < 0.2
    assert first.kinds or re.search(r", real .* \(in \d+ % of the images", first.text)  # a kind, or readings
    assert f"cluster_{spoiled}" in {other.area.region for other in others}


@pytest.mark.parametrize("spoiled", slow_but([2, 3, 4], 3))
def test_image_and_product_agree_within_the_baseline(planted, spoiled):
    monitor = planted(spoiled).monitor
    low, _, high = monitor.baseline["image"]
    assert all(abs(record["image"] - record["product"]) < high - low for record in monitor.history)
    assert monitor.history[-1]["image"] < low - 5 * (high - low)
    assert [record["dependent_regions"] for record in monitor.history] == [0] * 5


def test_perfect_generator_is_within_its_baseline(planted):
    run = planted(None)
    assert run.alerts == []
    low = {name: band[0] for name, band in run.monitor.baseline.items()}
    assert all(record[name] >= low[name] for record in run.monitor.history for name in ["image", *PLANTED_REGIONS])


def test_end_of_fit_prints_the_largest_contributor_first(planted):
    rows = [line for line in planted(3).printed.splitlines() if re.match("cluster_|constant", line)]
    assert rows[0].split()[0] == "cluster_3"
    assert sorted(row.split()[0] for row in rows) == PLANTED_REGIONS
    sizes = dict(
        zip(["constant", *PLANTED_REGIONS[:4]], planted_labels().unique(return_counts=True)[1].tolist(), strict=True)
    )
    assert {row.split()[0]: int(row.split()[1]) for row in rows} == sizes
    assert re.search(
        r"cluster_3 +32 +0\.9\d+ +[\d.]+ × +99 %  upper right +differs \(p = 0\.001\), worse than at its", rows[0]
    )


# the value itself


def reference(fake, real, gamma, columns=slice(None)):
    """Return CMS by its formula, one pair of images at a time."""
    x, y = (np.asarray(images, dtype=np.float64).reshape(len(images), -1)[:, columns] for images in (fake, real))

    def mean(a, b):
        return np.mean([[np.exp(-gamma * np.sum((u - v) ** 2)) for v in b] for u in a])

    return mean(x, y) / np.sqrt(mean(x, x) * mean(y, y))


def test_values_are_those_of_the_formula(tmp_path):
    monitor = plain(n_samples=30)
    runner, module = fit(tmp_path, monitor, val=loader(digits(300, 400)))
    samples, gamma, record = drawn(monitor, runner, module), monitor.kernel.gamma, monitor.history[-1]
    real = monitor.evaluator.fitted.real
    assert record["image"] == pytest.approx(reference(samples, real, gamma), rel=1e-5)
    for name, label in monitor.partition.regions().items():
        columns = (monitor.partition.labels == label).flatten().numpy()
        assert record[name] == pytest.approx(
            reference(samples, monitor.evaluator.fitted.real, gamma, columns), rel=1e-5
        )
    training = digits(0, 300)
    sources = ImageSet.of_training(runner.train_dataloader, runner.val_dataloaders)
    assert {tuple(image.flatten().tolist()) for image in real} <= {
        tuple(image.flatten().tolist()) for image in digits(300, 400)
    }
    chosen = split_reference(sources, 200, 30, None, 0).regions.indices
    squares = torch.cdist(training[chosen].flatten(1).double(), training[chosen].flatten(1).double()).square()
    upper = squares[tuple(torch.triu_indices(200, 200, 1))]
    assert gamma == pytest.approx(1 / float(upper.quantile(0.5)), rel=1e-9)


def test_whole_numbers_are_read_as_0_to_1(tmp_path):
    pixels = (digits(0, 300) * 8 + 8).mul(15).to(torch.uint8)
    batches = DataLoader([{"image": image, "label": i % 3} for i, image in enumerate(pixels)], 100)
    monitor = plain(sample_fn=lambda module, n: module.sample(n) / 2 + 0.5, real_images=batches)
    fit(tmp_path, monitor, max_epochs=1)
    assert (float(monitor.evaluator.fitted.real.min()), float(monitor.evaluator.fitted.real.max())) == (
        0,
        pytest.approx(240 / 255),
    )
    assert monitor.evaluator.fitted.regions.value_range == (0, pytest.approx(240 / 255))
    assert monitor.history[0]["images_seen"] == 300


class Pooled:
    """A site encoder: 2×2 means, as a VAE's latents would be."""

    def __call__(self, images):
        assert len(images) <= 100
        return avg_pool2d(images, 2)


@pytest.mark.filterwarnings("ignore:Pixel")
def test_regions_live_on_the_map_of_a_site_encoder(tmp_path):
    monitor = PixelClusterMonitor(3, n_samples=60, n_cluster_images=200, site_encoder=Pooled(), on_error="raise")
    runner, module = fit(tmp_path, monitor, val=loader(digits(300, 400)), max_epochs=1)
    assert monitor.partition.image_size == (4, 4)
    assert monitor.partition.num_clusters == 3
    expected = reference(
        *(avg_pool2d(x, 2) for x in (drawn(monitor, runner, module), monitor.evaluator.fitted.real)),
        monitor.kernel.gamma,
    )
    assert monitor.history[0]["image"] == pytest.approx(expected, rel=1e-5)
    assert {path.name.split("_epoch")[0].removesuffix(".png") for path in (tmp_path / "genmonitor").glob("*.png")} == {
        "cms_clusters",
        "cms_samples",
    }


@pytest.mark.filterwarnings("ignore:Pixel")
def test_figures_are_drawn_at_the_first_evaluation_and_the_last(tmp_path):
    logger = TensorBoardLogger(tmp_path, name=None, version="")
    monitor = PixelClusterMonitor(3, n_samples=60, n_cluster_images=200, verbose=False)
    fit(tmp_path, monitor, val=loader(digits(300, 400)), max_epochs=3, logger=logger)
    images = read_tensorboard(tmp_path).Images
    assert [image.step for image in images("cms/samples")] == [2, 8]


def test_site_encoder_is_run_in_eval_mode_and_left_as_it_was(tmp_path):
    encoder = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.5))
    monitor = plain(site_encoder=encoder)
    fit(tmp_path, monitor, module=Linear(lr=0.0), val=loader(digits(300, 400)))
    assert encoder.training
    assert float(encoder[0].num_batches_tracked) == 0
    assert monitor.history[0]["image"] == monitor.history[1]["image"]
