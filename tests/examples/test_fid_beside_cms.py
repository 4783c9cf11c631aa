# SPDX-License-Identifier: Apache-2.0
import math
import sys
from functools import partial

import fid_beside_cms
import pytest
import torch
from data import ImageData
from dcgan import DCGAN
from fid_beside_cms import FEATURES, baselines, beside_cms, make_metrics, train_classifier

SAYS = ["ignore:Metric `", "ignore:.*LeafSpec", "ignore:.*does not have many workers", "ignore:PixelCl"]


@pytest.mark.filterwarnings(*SAYS)
def test_metrics_on_the_network_tell_digits_from_noise():
    torch.manual_seed(0)
    data = ImageData("digits", with_labels=True)
    features, classifier, accuracy = train_classifier(data, steps=120)
    assert accuracy > 0.9
    assert not any(parameter.requires_grad for parameter in classifier.parameters())
    images = data.train_images.images
    assert features(images[:3]).shape == (3, FEATURES)
    assert float(features(images).std()) == pytest.approx(1, abs=1e-4)
    found = {}
    for name, fake in (("digits", images[300:500]), ("noise", torch.rand(200, 1, 8, 8) * 2 - 1)):
        metrics = make_metrics(features, classifier, 200)
        for metric in metrics.values():
            if metric is not metrics["inception_score"]:
                metric.update(images[:200], real=True)
                metric.update(fake, real=False)
            else:
                metric.update(fake)
        found[name] = {key: metric.compute() for key, metric in metrics.items()}
    for key in ("fid", "mifid"):
        assert found["digits"][key] < found["noise"][key] / 3
    assert found["digits"]["kid"][0] < found["noise"]["kid"][0] / 3
    assert found["digits"]["inception_score"][0] > found["noise"]["inception_score"][0]


@pytest.mark.filterwarnings(*SAYS)
def test_features_of_the_configuration_are_trained_alike_every_time(monkeypatch):
    monkeypatch.setattr(fid_beside_cms, "train_classifier", partial(train_classifier, steps=3))
    images = torch.rand(5, 1, 8, 8)
    first, state = fid_beside_cms.TrainedDigitFeatures(), torch.get_rng_state()
    torch.testing.assert_close(fid_beside_cms.TrainedDigitFeatures()(images), first(images))
    assert torch.equal(torch.get_rng_state(), state)
    assert float(first(ImageData("digits").train_images.images).std()) == pytest.approx(1, abs=1e-4)
    assert not any(parameter.requires_grad for parameter in first.parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings(*SAYS)
def test_script_draws_all_metrics_beside_cms(monkeypatch, capsys, tmp_path):
    small = {"generator_features": 4, "discriminator_features": 4}
    monkeypatch.setattr(fid_beside_cms, "DCGAN", partial(DCGAN, **small))
    words = ["fid_beside_cms.py", "--epochs", "2", "--n-samples", "60", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", words)
    drawn = []
    monkeypatch.setattr(fid_beside_cms, "beside_cms", lambda *given: drawn.append(given) or beside_cms(*given))
    fid_beside_cms.main()
    (_, image, _, others, deviations, bands) = drawn[0]
    assert all(len(values) == len(image) == 2 for values in [*others.values(), *deviations.values()])
    assert "kid" in deviations
    assert set(deviations) <= set(others) == set(bands)
    assert "% of the held-out digits" in capsys.readouterr().out
    assert (tmp_path / "run" / "version_0" / "fid-beside-cms.png").exists()


@pytest.mark.filterwarnings(*SAYS)
def test_baselines_are_what_real_images_get():
    torch.manual_seed(0)
    data = ImageData("digits", with_labels=True)
    features, classifier, _ = train_classifier(data, steps=120)
    metrics = make_metrics(features, classifier, 100)
    images = data.val_images.images[:100]
    for name in ("fid", "kid", "mifid"):
        metrics[name].update(images, real=True)
    bands = baselines(metrics, data, 100)
    assert set(bands) == set(metrics)
    assert all(low < middle < high for low, middle, high in bands.values())
    metrics["fid"].reset()
    metrics["fid"].update(data.train_images.images[:100], real=False)
    low, _, high = bands["fid"]
    assert low < metrics["fid"].compute() < high
    metrics["fid"].reset()
    metrics["fid"].update(0.5 * data.train_images.images[:100], real=False)
    assert metrics["fid"].compute() > 2 * high


def test_inception_gets_bytes_in_three_channels(monkeypatch):
    class Network(torch.nn.Module):
        def __init__(self, *given):
            super().__init__()
            self.given = given

        def forward(self, images):
            self.seen = images
            return images.flatten(1)

    monkeypatch.setattr(fid_beside_cms, "NoTrainInceptionV3", Network)
    features, logits = fid_beside_cms.make_networks("weights.pth")
    assert logits.network.given == ("inception-v3-compat", ["logits_unbiased"], "weights.pth")
    assert features.network.given[1] == ["2048"]
    features(torch.tensor([-1.0, 0.0, 1.0, 1.2]).view(1, 1, 2, 2))
    assert features.network.seen.dtype == torch.uint8
    assert features.network.seen.shape == (1, 3, 2, 2)
    assert features.network.seen[0, 2].flatten().tolist() == [0, 128, 255, 255]


OTHERS = {"fid": [8.0, 3.0, math.nan], "kid": [1.0, 0.5, 0.25]}
DEVIATIONS = {"kid": [0.1, 0.1, 0.05]}


def test_each_metric_has_a_panel_with_its_deviation_as_band():
    figure = beside_cms([1, 2, 3], [0.9, 0.99, 0.999], (0.998, 0.999, 0.9995), OTHERS, DEVIATIONS)
    cms, fid, kid = figure.axes
    assert cms.get_title(loc="left") == "CMS, latest 0.9990"
    assert fid.get_title(loc="left") == "fid, latest 3"
    assert cms.patches[0].get_extents().height > 0  # the baseline
    band = kid.collections[-1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (pytest.approx(0.2), pytest.approx(1.1))
    assert fid.lines[0].get_ydata()[:2].tolist() == [8.0, 3.0]


def test_baselines_of_other_metrics_are_drawn_where_they_are_known():
    figure = beside_cms([1, 2, 3], [0.9, 0.99, 0.999], None, OTHERS, bands={"fid": (0.5, 0.6, 0.75)})
    cms, fid, kid = figure.axes
    assert [len(ax.patches) for ax in (cms, fid, kid)] == [0, 1, 0]
    (bar,) = fid.patches
    assert (bar.get_y(), bar.get_height()) == (0.5, pytest.approx(0.25))
    assert "gray bars: what real images get" in figure.texts[1].get_text()


@pytest.mark.parametrize(
    ("values", "scale"),
    [([4000.0, 30.0], "log"), ([8.0, 3.0], "linear"), ([9.0, -0.1], "linear"), ([math.nan], "linear")],
)
def test_falling_by_orders_of_magnitude_gets_a_log_scale(values, scale):
    epochs = list(range(len(values)))
    figure = beside_cms(epochs, [0.9] * len(values), None, {"fid": values})
    assert figure.axes[1].get_yscale() == scale
    figure.canvas.draw()


def test_panels_do_not_overlap():
    figure = beside_cms([1, 2], [0.9, 0.99], None, {name: [1.0, 2.0] for name in "abcdef"})
    boxes = [ax.get_position() for ax in figure.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    assert all(0 < box.y0 < box.y1 < 0.95 for box in boxes)
