# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers.pretrained import save_dinov2
from torch import nn
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

from genmonitor import PRDC, GaussianKernel, VendiScore
from genmonitor.distributed import SingleProcess
from genmonitor.encoders import FeatureMetrics, image_encoder
from genmonitor.encoders.feature_metrics import NEIGHBORS, FidelityMetrics, check_neighbors
from genmonitor.evaluation import RegionEvaluator, RegionSettings
from genmonitor.evaluation.extra_metrics import ExtraMetrics
from genmonitor.functional import authenticity, precision_recall_density_coverage, rke_score, vendi_score
from genmonitor.kernels import CosineKernel

pytestmark = pytest.mark.filterwarnings("ignore:Metric `Kernel Inception Distance` will save all")


class Counting(nn.Module):
    """A linear encoder that counts the images it sees."""

    num_features = 6

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.seen = nn.Linear(16, 6), 0

    def forward(self, images):
        self.seen += len(images)
        return self.linear(images.flatten(1))


def images(n, seed, scale=1.0):
    return scale * torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


REAL, FAKE = images(120, 0), images(110, 1, 0.8)


def fed(metric, real=REAL, fake=FAKE):
    for batch in real.split(50):
        metric.update(batch, real=True)
    for batch in fake.split(50):
        metric.update(batch, real=False)
    return metric


def by_forward(make):
    metric = make()
    for batch in REAL.split(50):
        assert metric(batch, real=True) is None
    for batch in FAKE.split(50):
        metric(batch, real=False)
    return metric


def by_merging(make):
    metric = make()
    for real, fake in ((REAL[:60], FAKE[:40]), (REAL[60:], FAKE[40:])):
        metric.merge_state(fed(make(), real, fake))
        metric.compute()  # a kept value must not outlive the next merge
    return metric


def by_state_dict(make):
    metric, saved = make(), make()
    saved.persistent(True)
    fed(saved, REAL[20:], FAKE[20:])
    metric.load_state_dict(saved.state_dict())
    return fed(metric, REAL[:20], FAKE[:20])


def with_an_empty_batch(make):
    metric = fed(make())
    metric.update(REAL[:0], real=True)
    return metric


@pytest.mark.parametrize("way", [by_forward, by_merging, by_state_dict, with_an_empty_batch])
def test_every_way_of_feeding_keeps_all_images(way):
    names = ["fid", "cmmd", "prdc", "authenticity", "vendi"]
    found = way(lambda: FeatureMetrics(Counting(), names)).compute()
    expected = fed(FeatureMetrics(Counting(), names)).compute()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_states_alone_are_not_merged():
    metric = FeatureMetrics(Counting(), ["vendi"])
    with pytest.raises(TypeError, match="`incoming_state` to be FeatureMetrics, but got dict"):
        metric.merge_state(metric.metric_state)


def test_values_are_those_of_the_metrics_alone():
    encoder = Counting()
    found = fed(FeatureMetrics(encoder, ["fid", "kid", "cmmd", "prdc", "authenticity", "vendi"])).compute()
    expected = {"fid": fed(FrechetInceptionDistance(encoder)).compute()}
    features = {"real": encoder(REAL).detach(), "fake": encoder(FAKE).detach()}
    prdc, vendi = PRDC(), VendiScore()
    prdc.update(features["real"], real=True)
    prdc.update(features["fake"], real=False)
    vendi.update(features["fake"])
    expected |= prdc.compute() | {"vendi": vendi.compute()}
    expected["authenticity"] = authenticity(features["fake"], features["real"])
    fake, real = (nn.functional.normalize(features[side].double()) for side in ("fake", "real"))
    pairs = ((fake, fake, 1), (real, real, 1), (fake, real, -2))
    expected["cmmd"] = 1000 * sum(sign * (-(torch.cdist(x, y) ** 2) / 200).exp().mean() for x, y, sign in pairs)
    assert set(found) == {"kid", *expected}
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-5)
    kid = fed(KernelInceptionDistance(encoder, subset_size=100)).compute()[0]
    assert float(found["kid"]) == pytest.approx(float(kid), rel=0.3)  # of random subsets


def test_each_image_is_encoded_once_and_real_ones_once_per_run():
    encoder = Counting()
    metric = fed(FeatureMetrics(encoder, ["fid", "kid", "prdc", "vendi"]))
    assert encoder.seen == 230
    before = metric.compute()
    metric.reset()
    for batch in FAKE.split(50):
        metric.update(batch, real=False)
    assert encoder.seen == 340
    assert metric.compute()["fid"] == before["fid"]


def test_the_real_side_is_forgotten_where_that_is_asked_for():
    metric = fed(FeatureMetrics(Counting(), ["fid"], reset_real_features=True))
    before = metric.compute()["fid"]
    metric.reset()
    assert fed(metric).compute()["fid"] == pytest.approx(float(before))
    metric.reset()
    metric.update(FAKE, real=False)
    with pytest.raises(RuntimeError, match="More than one sample"):
        metric.compute()


def test_real_side_is_given_once_along_with_cms():
    encoder = Counting()
    extra = ExtraMetrics({"linear": FeatureMetrics(encoder, ["fid", "prdc"])})
    extra.check(FAKE[:16], REAL[:16])
    encoder.seen = 0
    found = []
    for _ in range(2):
        extra.update(FAKE, REAL)
        found.append(extra.compute(SingleProcess()))
    assert found[0] == found[1]
    assert set(found[0]) == {f"linear_{name}" for name in ("fid", "precision", "recall", "density", "coverage")}
    assert encoder.seen == 120 + 2 * 110
    torch.testing.assert_close(found[0]["linear_fid"], float(fed(FrechetInceptionDistance(encoder)).compute()))


def test_a_pretrained_encoder_is_logged_along_with_cms_in_two_lines(tmp_path):
    folder = save_dinov2(tmp_path)
    features = FeatureMetrics(image_encoder(folder, value_range=(0, 1)))
    evaluator = RegionEvaluator(RegionSettings(2, n_samples=110), extra_metrics={"dinov2": features})
    from genmonitor.evaluation import ImageSet, Samples, run_evaluation

    samples = Samples(FAKE, torch.arange(110))
    evaluator.fit(ImageSet(images(400, 2)), FAKE[:16], SingleProcess())
    _, found = run_evaluation(evaluator, lambda: samples, SingleProcess(), seed=0)
    assert found.values["dinov2_fid"] > 0
    assert "dinov2_kid" in found.values


def test_encoder_is_frozen_and_follows_to():
    encoder = Counting().train()
    metric = FeatureMetrics(encoder, ["vendi"])
    assert not encoder.training
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert metric.to("meta").encoder.linear.weight.device.type == "meta"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (Counting(), ["fidd"]),
            ValueError,
            "`metrics` to be one of 'fid', 'kid', 'cmmd', 'prdc', 'authenticity', 'vendi', but got 'fidd'",
        ),
        ((nn.Flatten(), ["fid"]), ValueError, "`num_features` for an encoder without an attribute"),
        ((3, ["vendi"]), TypeError, "`encoder` to be a callable or Module"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        FeatureMetrics(*arguments)


REALS, FAKES, OTHERS = (torch.randn(20, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3))


def test_fidelity_is_that_of_prdc():
    metrics = FidelityMetrics(REALS, CosineKernel(), None)
    metrics.update(FAKES)
    expected = precision_recall_density_coverage(FAKES, REALS, k=NEIGHBORS)
    found = metrics.compute()
    assert {name: found[name] for name in expected} == {name: float(value) for name, value in expected.items()}


def test_fidelity_of_an_evaluation_replaces_the_last():
    first, second = FidelityMetrics(REALS, CosineKernel(), None), FidelityMetrics(REALS, CosineKernel(), None)
    first.update(OTHERS)
    first.update(FAKES)
    second.update(FAKES)
    assert first.compute() == second.compute()


def test_fidelity_scores_the_real_images_too():
    found = FidelityMetrics(REALS, CosineKernel(), None).of_real
    assert found == {
        "real_vendi": pytest.approx(float(vendi_score(REALS)), rel=1e-5),
        "real_rke": pytest.approx(float(rke_score(REALS)), rel=1e-5),
    }


def test_fidelity_takes_random_features_for_a_gaussian_only():
    # those of a cosine kernel are the prompts' kernel's
    assert FidelityMetrics(REALS, CosineKernel(), 8).of_real == FidelityMetrics(REALS, CosineKernel(), None).of_real
    with_few = FidelityMetrics(REALS, GaussianKernel(0.1), 4).of_real
    assert with_few != FidelityMetrics(REALS, GaussianKernel(0.1), None).of_real


@pytest.mark.parametrize(("real", "generated"), [(5, 9), (9, 5)])
def test_check_neighbors_refuses_too_few_on_either_side(real, generated):
    with pytest.raises(ValueError, match=f"more than 5 real and generated images, .* but got {real} and {generated}"):
        check_neighbors(real, generated)


def test_check_neighbors_lets_six_pass():
    assert check_neighbors(6, 6) is None


def test_saved_statistics_take_the_place_of_real_images(tmp_path):
    encoder = Counting()
    expected = fed(FeatureMetrics(encoder, ["fid"]))
    expected.save_reference(tmp_path / "real.npz")
    features = encoder(REAL).detach().double().numpy()
    with np.load(tmp_path / "real.npz") as saved:
        assert sorted(saved) == ["mu", "sigma"]
        np.testing.assert_allclose(saved["mu"], features.mean(0), rtol=1e-6)
        np.testing.assert_allclose(saved["sigma"], np.cov(features.T), rtol=0, atol=1e-6)
    metric = FeatureMetrics(encoder, ["fid", "vendi"])
    metric.load_reference(tmp_path / "real.npz")
    for _ in range(2):
        for batch in FAKE.split(50):
            metric.update(batch, real=False)
        assert float(metric.compute()["fid"]) == pytest.approx(float(expected.compute()["fid"]), rel=1e-4)
        metric.reset()


@pytest.mark.parametrize(
    ("metrics", "arrays", "message"),
    [
        (["kid"], {}, '"fid" among the metrics for statistics, but got kid'),
        (["fid", "prdc"], {}, "FID alone .* but got prdc too"),
        (["fid"], {"mu": np.zeros(6)}, r"mu \[6\] and sigma \[6, 6\] .* has \{'mu': \(6,\)\}"),
        (["fid"], {"mu": np.zeros(5), "sigma": np.eye(5)}, "Take statistics of the same encoder"),
        (["fid"], {"mu": np.full(6, np.nan), "sigma": np.eye(6)}, "finite arrays"),
        (["fid"], {"other": np.zeros(6)}, "has neither"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(tmp_path, metrics, arrays, message):
    np.savez(tmp_path / "real.npz", **arrays)
    metric = FeatureMetrics(Counting(), metrics)
    with pytest.raises(ValueError, match=message):
        metric.load_reference(tmp_path / "real.npz")


def test_statistics_of_no_images_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="at least 2 real images to save statistics of, but got 0"):
        FeatureMetrics(Counting(), ["fid"]).save_reference(tmp_path / "real.npz")
    assert not list(tmp_path.iterdir())
