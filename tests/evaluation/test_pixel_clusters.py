# SPDX-License-Identifier: Apache-2.0
"""RegionEvaluator without a Trainer."""

import json
from dataclasses import replace

import pytest
import torch
from _helpers import golden
from _helpers.evaluations import ScriptedCollective, evaluate, fit, halves, measured, region_evaluator, samples_of
from matplotlib.figure import Figure
from torch import nn
from torchmetrics import CosineSimilarity
from torchmetrics.aggregation import MeanMetric

from genmonitor import CosineMeanSimilarity, PixelPartition, compare, diagnose
from genmonitor.cli.gate import condition, failures
from genmonitor.distributed import FailedElsewhereError, SingleProcess
from genmonitor.evaluation import RegionSettings
from genmonitor.evaluation.evaluator import SettingsChangedError, commit_evaluation
from genmonitor.evaluation.regions.evaluation import RegionEvaluation
from genmonitor.evaluation.regions.search import RegionFinder
from genmonitor.findings.finding import CLAIM
from genmonitor.images.image_set import ImageSet, fingerprint

REAL, GOOD, BAD = halves(80), halves(24, seed=1), halves(24, seed=2, dark=0.4)
COLUMNS = PixelPartition.grid((4, 6), 1, 2)


class Brightness(MeanMetric):
    """The mean pixel of generated images."""

    def update(self, images):
        super().update(images)


def fitted(**settings):
    evaluator = region_evaluator(**settings)
    fit(evaluator, REAL, GOOD)
    return evaluator


@pytest.fixture(scope="module")
def shared():
    """A fitted evaluator, and a history of two evaluations of which the second is bad."""
    evaluator, history = fitted(), []
    evaluations = [evaluate(evaluator, images, history) for images in (GOOD, BAD)]
    return evaluator, history, evaluations[-1]


def summary(evaluator, history):
    """Return the table of a history."""
    return evaluator.presenter().summary(evaluator.findings(RegionEvaluation({}, None), history), history)


def dark_region(evaluator):
    return f"cluster_{int(evaluator.partition.labels[0, 5])}"


def test_region_values_are_the_plain_metrics(shared):
    evaluator, _, evaluation = shared
    metric = CosineMeanSimilarity(evaluator.partition, evaluator.kernel)
    metric.update(evaluator.fitted.real, real=True)
    metric.update(BAD, real=False)
    expected = {name: float(value) for name, value in metric.compute().items()}
    expected["dependent_regions"] = expected.pop("violations")
    assert {name: evaluation.values[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_region_values_hold_mmd_and_the_baselines_medians(shared):
    evaluator, _, evaluation = shared
    medians = {spec.baseline_of: evaluation.values[spec.key] for spec in evaluator.values() if spec.baseline_of}
    assert medians == {name: band[1] for name, band in evaluator.baseline.items()}
    assert evaluation.values["mmd"] > evaluator.baseline["mmd"][2]


def test_region_values_blame_the_part_that_is_wrong(shared):
    evaluator, _, evaluation = shared
    dark = dark_region(evaluator)
    assert evaluation.values[dark] < evaluator.baseline[dark][0]
    assert evaluation.values[dark.replace("cluster", "share")] > 0.8


def test_region_evaluation_is_repeatable(shared):
    evaluator, _, evaluation = shared
    changing = {spec.key for spec in evaluator.values() if not spec.repeatable}
    again, once = (measured(found) for found in (evaluate(evaluator, BAD), evaluation))
    assert {k: v for k, v in again.items() if k not in changing} == {k: v for k, v in once.items() if k not in changing}


def test_region_message_names_the_dark_half(shared):
    evaluator, history, evaluation = shared
    news, *findings = evaluator.findings(evaluation, history)
    assert news.text.startswith("Visibly worse than at epoch 0, its best: brightness ")
    assert str(findings[0]).startswith(
        f"{dark_region(evaluator)} (right half) differs from real images since epoch 1: error ratio "
    )


def test_region_summary_has_a_row_for_each_region(shared):
    evaluator, history, _ = shared
    rows = [line.split()[0] for line in summary(evaluator, history).splitlines() if line.startswith("cluster_")]
    assert rows[0] == dark_region(evaluator)
    assert sorted(rows) == ["cluster_1", "cluster_2"]


def test_region_values_are_all_declared(shared):
    evaluator, _, evaluation = shared
    specs = {spec.key: spec for spec in evaluator.values()}
    # which needs 100 images a side
    of_diagnosis = {
        "spread",
        "nearest_sample",
        "explained",
        "proportions",
        "copied",
        "strange_samples",
        "uncovered_images",
    }
    assert specs.keys() - of_diagnosis == evaluation.values.keys() - {"sampling_seconds", "metric_seconds"}
    better = {key: spec.better for key, spec in specs.items()}
    assert better["cluster_1"] == better["image"] == "high"
    assert better["error_ratio_2"] == better["mmd"] == better["structure_1"] == "low"
    assert better["share_1"] is better["p_image"] is None
    details = {key for key, spec in specs.items() if spec.detail}
    assert {"baseline_image", "p_1", "vs_best_image", "share_2", "structure_1", "dependent_regions"} <= details
    assert not details & {"image", "cluster_1", "error_ratio_1", "structure_image", "mmd", "product"}


def test_region_figures_are_drawn(shared):
    evaluator, history, evaluation = shared
    presenter = evaluator.presenter()
    evaluation = replace(evaluation, between=False, findings=evaluator.findings(evaluation, history))
    found, drawn = presenter.fit_figures(), presenter.figures(evaluation, history, samples_of(BAD))
    assert "clusters" in found
    assert "samples" in drawn
    assert all(isinstance(figure, Figure) for figure in (*found.values(), *(draw() for draw in drawn.values())))


def test_region_manifest_is_json_and_names_its_artifacts(shared, tmp_path):
    evaluator, _, _ = shared
    evaluator.write_artifacts(tmp_path)
    manifest = json.loads(json.dumps(evaluator.manifest()))
    named = {manifest["partition"], manifest["real"]}
    assert {path.name for path in tmp_path.iterdir()} == named
    assert manifest["stability"] == {"overall": 1, "cluster_1": 1, "cluster_2": 1}
    assert manifest["gamma"] == evaluator.kernel.gamma


def test_region_artifacts_tell_partition_and_real_images(shared, tmp_path):
    evaluator, _, _ = shared
    evaluator.write_artifacts(tmp_path)
    assert PixelPartition.load(tmp_path / evaluator.manifest()["partition"]) == evaluator.partition
    real = json.loads((tmp_path / evaluator.manifest()["real"]).read_text())
    assert real["sha256"] == fingerprint(REAL[real["indices"]])


# alerts


def alerts_of(evaluator, evaluations):
    """Evaluate sets of images one after the other; return the alerts of each."""
    history, found = [], []
    for images in evaluations:
        evaluation = evaluate(evaluator, images)
        history.append({"epoch": len(history), "step": 0, **evaluation.values})
        found.append(evaluator.commit(evaluation, history))
    return found


def test_region_commit_alerts_once_when_a_region_got_worse():
    evaluator = fitted()
    first, second, third, fourth = alerts_of(evaluator, [REAL[:24], BAD, BAD, BAD])
    assert first == second == fourth == []
    (alert,) = third
    assert alert.area.region == dark_region(evaluator)
    assert alert.text.startswith(f"{dark_region(evaluator)} (right half) got worse since epoch 1: error ratio 3.")
    assert "1 × (chance) at epoch 0, its best" in alert.text


@pytest.mark.parametrize(("noise", "alerts"), [(0.01, 0), (0.5, 1)])
def test_constant_pixels_raise_an_alert_only_where_they_are_visibly_off(noise, alerts):
    """A trace of noise where real images never vary is significant at once, and nothing to be told of."""
    framed = nn.functional.pad(REAL, (1, 1, 1, 1))
    labels = nn.functional.pad(COLUMNS.labels, (1, 1, 1, 1))  # 0 is constant
    evaluator = region_evaluator(partition=PixelPartition(labels))
    fit(evaluator, framed, framed)
    generator = torch.Generator().manual_seed(0)
    noisy = [framed[:24] + noise * (labels == 0) * torch.rand(24, 1, 6, 8, generator=generator) for _ in range(3)]
    raised = [alert for found in alerts_of(evaluator, [framed[:24], *noisy]) for alert in found]
    assert [alert.area.region for alert in raised] == ["constant"] * alerts


def test_region_commit_that_fails_elsewhere_counts_for_nothing():
    evaluator, history = fitted(), []
    evaluate(evaluator, REAL[:24], history)
    bad, before = evaluate(evaluator, BAD), evaluator.fit_state()["tracker"]["in_a_row"]
    with pytest.raises(FailedElsewhereError):
        commit_evaluation(evaluator, bad, [*history, {"epoch": 1, **bad.values}], ScriptedCollective(other=False))
    assert evaluator.fit_state()["tracker"]["in_a_row"] == before


def test_region_commit_is_silent_on_a_good_generator():
    assert alerts_of(fitted(), 4 * [REAL[:24]]) == [[], [], [], []]


# state


def through_a_file(state, folder):
    torch.save(state, folder / "state.pt")
    return torch.load(folder / "state.pt", weights_only=True)


def test_region_state_gives_the_same_values_again(shared, tmp_path):
    evaluator, *_ = shared
    again = region_evaluator()
    again.load_state_dict(through_a_file(evaluator.state_dict(), tmp_path))
    report = fit(again, REAL, GOOD)
    assert report.comparable
    assert measured(evaluate(again, BAD)) == measured(evaluate(evaluator, BAD))


def test_region_state_remembers_which_region_was_below(tmp_path):
    first, second = fitted(), region_evaluator()
    alerts_of(first, [REAL[:24], BAD])
    second.load_state_dict(through_a_file(first.state_dict(), tmp_path))
    fit(second, REAL, GOOD)
    (alerts,) = alerts_of(second, [BAD])
    assert len(alerts) == 1


def test_region_state_before_fit_holds_nothing_found():
    again = region_evaluator()
    again.load_state_dict(region_evaluator().state_dict())
    assert again.partition is None


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"n_clusters": 3}, "n_clusters"),
        ({"n_samples": 20}, "n_samples"),
        ({"seed": 1}, "seed"),
        ({"patch_size": 2}, "patch_size"),
        ({"block_size": 12}, "block_size"),
        ({"partition": COLUMNS}, "n_clusters, partition"),
    ],
)
def test_region_state_of_other_settings_is_refused(shared, settings, name):
    other = region_evaluator(**settings)
    with pytest.raises(SettingsChangedError, match=f"but these differ: {name}"):
        other.load_state_dict(shared[0].state_dict())
    assert other.baseline == {}  # nothing is taken over
    assert other.kernel.gamma is None


def test_region_fit_to_other_images_starts_anew():
    evaluator = fitted()
    before = evaluator.kernel.gamma
    report = fit(evaluator, halves(80, seed=5, dark=0.9), GOOD)
    assert not report.comparable
    assert any("used with different images before" in note for note in report.notes)
    assert evaluator.kernel.gamma != before


def test_region_fit_to_the_same_images_keeps_everything():
    evaluator = fitted()
    regions = evaluator.fitted.regions
    assert fit(evaluator, REAL, GOOD).comparable
    assert evaluator.fitted.regions is regions


def test_region_forget_finds_everything_anew():
    evaluator = fitted()
    evaluator.forget()
    assert evaluator.partition is None
    assert evaluator.baseline == {}


def test_region_forget_forgets_which_region_was_below():
    evaluator = fitted()
    alerts_of(evaluator, [REAL[:24], BAD])
    evaluator.forget()
    fit(evaluator, REAL, GOOD)
    assert alerts_of(evaluator, [BAD]) == [[]]


# what it is given


def test_region_fit_takes_a_partition():
    evaluator = fitted(partition=COLUMNS)
    assert evaluator.partition is COLUMNS


def test_region_extra_metrics_are_among_the_values():
    evaluator = fitted(extra_metrics={"Brightness": Brightness()})
    assert evaluate(evaluator, BAD).values["brightness"] == pytest.approx(float(BAD.mean()), abs=1e-6)
    assert evaluator.unserializable_args() == ["extra_metrics"]


def test_region_fit_refuses_an_extra_metric_that_does_not_fit():
    with pytest.raises(ValueError, match="`extra_metrics` to take images"):
        fitted(extra_metrics={"cosine": CosineSimilarity()})


def test_region_site_encoder_moves_regions_to_its_maps():
    evaluator = fitted(site_encoder=nn.AvgPool2d(2))
    assert evaluator.partition.labels.shape == (2, 3)
    pooled = CosineMeanSimilarity(evaluator.partition, evaluator.kernel)
    pooled.update(nn.AvgPool2d(2)(evaluator.fitted.real), real=True)
    pooled.update(nn.AvgPool2d(2)(BAD), real=False)
    assert evaluate(evaluator, BAD).values["image"] == pytest.approx(float(pooled.compute()["image"]), rel=1e-6)
    assert evaluator.unserializable_args() == ["site_encoder"]


def test_region_evaluation_notes_images_that_are_all_the_same():
    evaluator = fitted()
    notes = evaluate(evaluator, GOOD[:1].expand(24, -1, -1, -1)).notes
    assert notes == ("all generated images are identical, so the values mean little",)
    assert evaluate(evaluator, GOOD).notes == ()


@pytest.mark.parametrize(
    ("settings", "probe", "message"),
    [
        ({}, torch.rand(8, 3, 4, 6), r"generated images of shape \[1, 4, 6\] like the real ones, but got \[3, 4, 6\]"),
        ({"patch_size": 4}, GOOD, "`patch_size` to divide"),
        ({"partition": PixelPartition.grid((4, 4), 1, 2)}, GOOD, "images"),
    ],
)
def test_region_fit_refuses(settings, probe, message):
    evaluator = region_evaluator(**settings)
    with pytest.raises(ValueError, match=message):
        fit(evaluator, REAL, probe)


def test_region_fit_notes_that_too_few_images_cannot_be_tested():
    evaluator = region_evaluator(n_samples=6)
    report = fit(evaluator, REAL, GOOD)
    assert any("they need at least 8 images on each side" in note for note in report.notes)
    record = {"epoch": 0, **evaluate(evaluator, BAD[:6]).values}
    assert "p_image" not in record
    (finding, *others) = evaluator.findings(RegionEvaluation({}, None), [record])
    assert str(finding).startswith("Too few images for a verdict")
    assert {other.verdict for other in others} == {"not tested"}
    assert "not tested" in summary(evaluator, [record])
    assert alerts_of(evaluator, [BAD[:6]] * 3) == [[], [], []]


@pytest.mark.parametrize(("n", "noted"), [(20, True), (99, True), (100, False)])
def test_region_fit_notes_that_too_few_images_have_no_diagnosis(n, noted):
    report = fit(region_evaluator(n_samples=n), halves(400), GOOD)
    assert noted == ("no diagnosis: it needs at least 100 images on each side" in report.notes)


def test_region_fit_notes_that_training_images_give_no_level():
    evaluator = region_evaluator()
    report = fit(evaluator, ImageSet.of_training(REAL, None), GOOD)
    assert any("so p-values may be too small or too large" in note for note in report.notes)


def test_region_values_of_a_second_evaluation_hold_the_change():
    evaluator, history = fitted(), []
    first, second = (evaluate(evaluator, images, history).values for images in (GOOD, BAD))
    assert not any("vs_best" in name for name in first)
    assert second[dark_region(evaluator).replace("cluster", "vs_best")] < -2


def test_regions_are_found_the_same_at_every_seed():
    first, second = (region_evaluator(seed=seed) for seed in (0, 1))
    for evaluator in (first, second):
        fit(evaluator, REAL, GOOD)
    assert first.partition == second.partition
    assert first.kernel == second.kernel


def test_regions_are_said_when_they_are_found(tmp_path):
    evaluator = region_evaluator()
    (message,) = fit(evaluator, REAL, GOOD).messages
    assert message.startswith("2 clusters; average linkage, stability 1.00\n")
    assert "cluster_1" in message
    assert "left half" in message
    assert message.isascii()
    assert fit(evaluator, REAL, GOOD).messages == ()  # known from before


def test_regions_of_a_run_are_kept_where_its_images_are_the_same(tmp_path):
    first = region_evaluator()
    fit(first, REAL, GOOD)
    first.write_artifacts(tmp_path)
    manifest = json.loads(json.dumps(first.manifest()))
    turned = PixelPartition(3 - first.partition.labels)  # not what would be found
    turned.save(tmp_path / "cms_partition.npz")

    def found(real):
        evaluator = region_evaluator()
        evaluator.reuse(manifest, tmp_path)
        evaluator.forget()  # what it found itself
        fit(evaluator, real, GOOD)
        return evaluator

    again = found(REAL)
    assert again.partition == turned
    assert again.fitted.regions.stability == first.fitted.regions.stability
    assert found(halves(len(REAL), seed=99)).partition != turned  # found again


def test_regions_may_be_given_by_their_path(tmp_path):
    partition = PixelPartition.grid((4, 6), 2, 1)
    partition.save(tmp_path / "partition.npz")
    for path in (tmp_path, tmp_path / "partition.npz", str(tmp_path)):
        assert region_evaluator(partition=path).partition == partition
    with pytest.raises(FileNotFoundError, match="there is none at"):
        region_evaluator(partition="nowhere.npz")


def test_small_images_are_compared_on_one_thread(monkeypatch):
    evaluator, used = region_evaluator(), []

    def watch(owner, name):
        method = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *x: used.append((name, torch.get_num_threads())) or method(*x))

    torch.set_num_threads(2)
    watch(RegionFinder, "find")
    fit(evaluator, REAL, GOOD)
    watch(evaluator.fitted.metrics, "compute")
    evaluate(evaluator, GOOD, [])
    assert used == [("find", 1), ("compute", 1)]
    assert torch.get_num_threads() == 2


def test_key_best_and_words_go_by_one_measure():
    evaluator, history, said = fitted(), [], []
    for dark in (0.1, 0.5, 1.0, 0.4):
        images = halves(24, seed=3, dark=dark)
        evaluation = evaluate(evaluator, images, history)
        said.append(
            [x.verdict for x in evaluator.findings(evaluation, history) if x.area.region == dark_region(evaluator)]
        )
    ratios = [record[evaluator.best_key] for record in history]
    assert min(range(4), key=ratios.__getitem__) == 2
    assert evaluator._tracker.epochs["image"] == 2
    assert [any("worse than at its best" in x for x in verdicts) for verdicts in said] == [False, False, False, True]


def test_lost_variation_is_no_reward():
    """44 % of the variation of real images is farther from them than a set of which half is too dark."""
    digits = golden.digits().float()
    digits = (digits[torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))] + 1) / 2
    evaluator = region_evaluator(partition=PixelPartition.grid((8, 8), 1, 2), n_samples=300)
    fit(evaluator, digits[300:1300], digits[:300])
    middle, dark = digits[:300].mean(0), digits[:300].clone()
    dark[:150] *= 0.6
    measured_of = []
    for images in (middle + 0.44 * (digits[:300] - middle), dark):
        evaluator.fitted.metrics.update(images)
        found = evaluator.fitted.metrics.compute(SingleProcess())
        measured_of.append(evaluator.fitted.regions.error_ratios(found.error) | {"cms": found.values["image"]})
    narrow, dark = measured_of
    assert narrow["cms"] > dark["cms"]  # the paper's measure sees it the other way round
    assert all(narrow[name] > 1.5 * dark[name] for name in ("image", "cluster_1", "cluster_2"))


@pytest.mark.parametrize("dark", [1.0, 0.9, 0.5])
def test_gate_and_headline_read_one_p_value(dark):
    """Whatever single tests say: a headline claims a fault where `p <= 0.02` fails the gate, and nowhere else."""
    settings, wanted = RegionSettings(partition=COLUMNS), [condition(f"p <= {CLAIM}")]
    for seed in range(3):
        found = compare(
            real=halves(300, seed=10 + seed), fake=halves(110, seed=20 + seed, dark=dark), settings=settings
        )
        claims = found.findings[0].fine is False
        assert claims is (found.values["p"] <= CLAIM)
        assert claims is bool(failures(wanted, found.specs, found.values))
        singles = found.values["p_image"], min(found.values["p_1"], found.values["p_2"]), found.values["p_finding"]
        assert found.values["p"] == pytest.approx(min(1.0, 3 * min(singles)))


def test_the_headline_explains_more_than_what_comes_after_it():
    """Near twins that explain little are not said before a fault that explains much."""
    real, few = halves(400, seed=30), halves(20, seed=31, dark=0.3)
    fake = few.repeat(10, 1, 1, 1) + 0.002 * torch.randn(200, 1, 4, 6, generator=torch.Generator().manual_seed(0))
    found = diagnose(fake=fake, real=real)
    twins = [x for x in found.findings if x.kinds and x.kinds[0].name == "copies"]
    assert twins
    assert "are the twins copies of training images?" in twins[0].remedy  # nothing that the diagnosis may not hold
    explained = {name: area.of_image for name, area in found.areas.items()}
    others = [
        explained[x.area.name]
        for x in found.findings
        if x.fine is False and x not in twins and x.area.name in explained
    ]
    assert max(others) > twins[0].kinds[0].share
    assert found.findings[0] not in twins


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("door", ["monitor", "compare", "diagnose"])
def test_real_images_that_repeat_are_named_behind_every_door(repeats, door):
    """Tests count each once, since 9 copies of 300 images would bring p <= 0.05 in 3 of 4 null cases."""
    real, fake = halves(120 // repeats, 1).repeat(repeats, 1, 1, 1), halves(100, 2)
    said = {
        "monitor": lambda: fit(region_evaluator(partition=COLUMNS, n_samples=60), real, fake).notes,
        "compare": lambda: compare(real=real, fake=fake, settings=RegionSettings(partition=COLUMNS)).notes,
        "diagnose": lambda: str(diagnose(fake=fake, real=real)),
    }[door]()
    assert ("identical to others of them: tests count each image once" in str(said)) is (repeats == 2)


@pytest.mark.parametrize("shared", [0, 40])
def test_training_images_among_those_that_are_compared_are_named_in_any_order(shared):
    """The validation images are files of the training again, so that no index shows it."""
    training, others = halves(120, 1), halves(100, 2)
    validation = torch.cat([others[shared:], training[:shared].flip(0)])
    real = ImageSet.of_training(training, validation)
    said = fit(region_evaluator(partition=COLUMNS, n_samples=100), real, others).notes
    assert (f"{shared} of 100 real images that are compared are identical to others" in str(said)) is (shared > 0)
