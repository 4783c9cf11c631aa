# SPDX-License-Identifier: Apache-2.0
import sys
from functools import partial

import fid_beside_cms
import pytest
import torch
from data import ImageData
from dcgan import DCGAN
from fid_beside_cms import FEATURES, baselines, make_metrics, train_classifier

from genmonitor.plotting.metrics import beside_cms

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
