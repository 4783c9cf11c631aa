# SPDX-License-Identifier: Apache-2.0
"""One MetricCollection with every metric is fed by one call, and says what each metric says alone."""

from inspect import signature
from itertools import combinations

import pytest
import torch
from _helpers.citizens import CITIZENS, HALVES, features, feed, images
from torchmetrics import MetricCollection

import genmonitor
from genmonitor import (
    PRDC,
    CosineKernel,
    CosineMeanSimilarity,
    GaussianKernel,
    MaximumMeanDiscrepancy,
    PromptSplit,
    RKEScore,
    ScendiScore,
    VendiScore,
)
from genmonitor.functional import calibrate

REAL, FAKE = images(30, 1), images(24, 2) ** 2
NEEDS = {"W1KPScore": {"calibration": calibrate(features(40, 5, 12))}}


def made(name):
    return getattr(genmonitor, name)(**NEEDS.get(name, {}))


def keywords(x, real):
    """All that the metrics of the package take, by name."""
    prompts = torch.eye(3).repeat(len(x), 1)[: len(x)]
    vectors = x.flatten(1)
    more = {"features": vectors, "outputs": vectors, "prompts": prompts, "prompt_index": torch.arange(len(x)) % 5}
    return {"samples": x, "images": x, **more, "real": real, "reference": real}


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def alone(name, calls):
    """The value of a metric that is given what it is about, and nothing else."""
    metric = made(name)
    takes = signature(metric.update).parameters
    one_sided = name != "PromptSplit" and takes["real"].default is False
    for x, real in calls:
        if not (real and one_sided):
            metric.update(**{key: value for key, value in keywords(x, real).items() if key in takes})
    return metric.compute()


grouped = pytest.mark.parametrize("groups", [True, False], ids=["compute groups", "apart"])


@grouped
def test_one_call_by_keywords_feeds_every_metric(groups):
    metrics = MetricCollection({name: made(name) for name in genmonitor.metrics.__all__}, compute_groups=groups)
    calls = [(REAL, True), (FAKE, False)]
    for x, real in calls:
        metrics.update(**keywords(x, real))
    for name in genmonitor.metrics.__all__:
        same(metrics[name].compute(), alone(name, calls))


@pytest.mark.parametrize("name", [name for name, citizen in CITIZENS.items() if citizen.one_sided])
@pytest.mark.parametrize("call", ["update", "forward"])
def test_a_metric_of_one_side_leaves_real_batches_out(name, call):
    citizen = CITIZENS[name]
    expected = citizen.fed().compute()
    metric = citizen.make(**citizen.arguments)
    (tensors, how), *_ = citizen.calls()
    sides = {"real", "reference"} & signature(metric.update).parameters.keys()
    for side in sides:
        assert getattr(metric, call)(tensors[0].flip(0) ** 3, *tensors[1:], **how, **{side: True}) is None
    same(feed(metric, citizen.calls()).compute(), expected)
    with pytest.raises(TypeError, match="`real` to be True or False"):
        metric.update(*tensors, real="no")


GROUPS = {
    "two sides": [CosineMeanSimilarity, MaximumMeanDiscrepancy, PRDC],
    "streaming": [VendiScore, RKEScore, lambda: VendiScore(order=2)],
    "kept": [
        lambda: VendiScore(GaussianKernel()),
        lambda: RKEScore(GaussianKernel(0.3)),
        lambda: VendiScore(GaussianKernel(), order=3),
    ],
}


@pytest.mark.parametrize("makes", GROUPS.values(), ids=GROUPS)
def test_groups_given_by_hand_say_what_each_says_alone(makes):
    by_hand = MetricCollection({str(i): make() for i, make in enumerate(makes)}, compute_groups=[["0", "1", "2"]])
    apart = MetricCollection({str(i): make() for i, make in enumerate(makes)}, compute_groups=False)
    for metrics in (by_hand, apart):
        for x, real in ((REAL, True), (FAKE[:15], False), (FAKE[15:], False)):
            metrics.update(x, real=real)
    same(by_hand.compute(), apart.compute())
    for metrics in (by_hand, apart):
        metrics.reset()
        metrics(FAKE, real=True)
        metrics(REAL, real=False)
    same(by_hand.compute(), apart.compute())


OTHERS = {
    "split open": lambda i: PromptSplit(num_features=8, num_modes=2 + i),
    "split seeds": lambda i: PromptSplit(GaussianKernel(0.5), GaussianKernel(1.0), num_features=8, seed=i),
    "vendi gammas": lambda i: VendiScore(GaussianKernel(0.5 + i), num_features=8),
    "vendi seeds": lambda i: VendiScore(GaussianKernel(0.5), num_features=8, seed=i),
    "scendi open": lambda i: ScendiScore(GaussianKernel(), num_features=8, rcond=(1e-3, 1e-4)[i]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_groups_given_by_hand_whose_sums_one_metric_cannot_read_are_refused(name):
    def fed(groups):
        metrics = MetricCollection({str(i): OTHERS[name](i) for i in (0, 1)}, compute_groups=groups)
        for x, real in ((REAL[:15], True), (FAKE, False), (REAL[15:], True), (FAKE, False)):
            metrics.update(**{key: value for key, value in keywords(x, real).items() if key != "images"})
        return metrics

    by_hand, apart = fed([["0", "1"]]), fed(False)
    same(by_hand["0"].compute(), apart["0"].compute())
    with pytest.raises(ValueError, match=r"the first metric of its compute group.*Leave `compute_groups` out"):
        by_hand["1"].compute()
    metrics = fed(True)
    same(metrics.compute(), apart.compute())


OTHER_SUMS = [
    lambda: VendiScore(GaussianKernel(0.5), num_features=8),
    lambda: VendiScore(GaussianKernel(2.0), num_features=8),
    lambda: VendiScore(GaussianKernel(0.5), num_features=8, seed=1),
    lambda: VendiScore(GaussianKernel(), num_features=8),
    VendiScore,
]


@pytest.mark.parametrize("pair", [*combinations(range(len(OTHER_SUMS)), 2)])
def test_metrics_with_other_sums_do_not_share_them(pair):
    metrics = MetricCollection({str(i): OTHER_SUMS[i]() for i in pair})
    for x, real in ((REAL, True), (FAKE, False)):  # the real side first: all sums are still zero
        metrics.update(x, real=real)
    for i in pair:
        expected = OTHER_SUMS[i]()
        expected.update(FAKE)
        same(metrics[str(i)].compute(), expected.compute())


def test_unlike_metrics_share_their_states():
    made_of = {
        "cms": CosineMeanSimilarity(),
        "regions": CosineMeanSimilarity(HALVES),
        "mmd": MaximumMeanDiscrepancy(),
        "prdc": PRDC(),
        "keeps": MaximumMeanDiscrepancy(reset_real_features=False),
        "vendi": VendiScore(),
        "rke": RKEScore(),
    }
    metrics = MetricCollection(made_of)
    metrics.update(REAL, real=True)
    metrics.update(FAKE, real=False)
    groups = sorted(map(sorted, metrics.compute_groups.values()))
    assert groups == [["cms", "mmd", "prdc", "regions"], ["keeps"], ["rke", "vendi"]]
    metrics.compute()
    metrics.reset()
    assert {name: len(metric.real_samples) for name, metric in metrics.items() if name in ("cms", "keeps")} == {
        "cms": 0,
        "keeps": 1,
    }


def test_a_second_model_is_left_out_of_metrics_of_one_beside_promptsplit():
    metrics = MetricCollection({"split": PromptSplit(num_modes=1), "scendi": ScendiScore(CosineKernel())})
    outputs, prompts = features(40, 1), features(40, 2, 3)
    metrics.update(outputs**3, prompts, reference=True)
    metrics.update(outputs, prompts, reference=False)
    alone = ScendiScore()
    alone.update(outputs, prompts)
    same(metrics["scendi"].compute(), alone.compute())
