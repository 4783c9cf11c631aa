# SPDX-License-Identifier: Apache-2.0
"""The diagnosis in an evaluation of regions: what is said first, since when, how often, and what a failure costs."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from _helpers.evaluations import halves, measured

from genmonitor import PixelPartition, diagnose
from genmonitor.evaluation import ImageSet, RegionEvaluator, RegionSettings, Samples, SingleProcess
from genmonitor.evaluation.evaluator import commit_evaluation
from genmonitor.evaluation.regions.diagnosis_schedule import CHANGED


class UsersFault(NamedTuple):
    name: str
    unit: str
    strengths: tuple
    apply: Callable


REAL, GOOD, DARK = halves(300), halves(120, seed=1), halves(120, seed=1, dark=0.6)
DIM = halves(120, seed=1, dark=0.7)
FADED = UsersFault("faded", "of the contrast", (0.2, 0.4, 0.6), lambda x, s, g: (1 - s) * x)


def fitted(**options):
    settings = {"partition": PixelPartition.grid((4, 6), 1, 2), "aligned": options.pop("aligned", True)}
    evaluator = RegionEvaluator(RegionSettings(n_samples=120, **settings), **options)
    evaluator.fit(ImageSet(REAL), GOOD[:16], SingleProcess())
    return evaluator


def evaluated(evaluator, images, history, alerts=None):
    """Evaluate and commit; return the evaluation and its findings, and put its alerts into a list."""
    evaluator.update(Samples(images, torch.arange(len(images))))
    evaluation = evaluator.compute(SingleProcess())
    history.append({"epoch": float(len(history)), **evaluation.values})
    found = commit_evaluation(evaluator, evaluation, history, SingleProcess())
    if alerts is not None:
        alerts.append(found)
    return evaluation, evaluator.findings(evaluation, history)


@pytest.fixture(scope="module")
def run():
    """Three evaluations of dark samples, each with a diagnosis."""
    evaluator, history = fitted(fault_models=[FADED]), []
    evaluator.is_last = True
    return evaluator, history, [evaluated(evaluator, DARK, history) for _ in range(3)]


def test_what_explains_most_is_said_first_and_since_when(run):
    _, _, found = run
    first, later = found[0][1][0], found[2][1][0]
    assert [kind.name for kind in first.kinds] == ["faded"]
    assert first.area.mask[:, 3:].float().mean() > 0.8
    assert not first.area.mask[:, :3].any()
    assert (first.since, later.since) == (0, 0)
    assert later.text == f"{first.text} Since epoch 0."


def test_images_that_are_not_aligned_have_a_kind_without_a_place():
    evaluator, history = fitted(aligned=False, fault_models=[FADED]), []
    evaluation, findings = evaluated(evaluator, 0.6 * GOOD, history)
    assert [kind.name for kind in findings[0].kinds] == ["faded"]
    assert findings[0].text.startswith("Anywhere: ")
    samples = Samples(0.6 * GOOD, torch.arange(len(GOOD)))
    drawn = evaluator.presenter().figures(_with(evaluation, findings), history, samples)
    assert drawn["diagnosis"]().axes[0].get_title(loc="left") == "real"


def test_numbers_of_the_image_are_values_with_declarations(run):
    evaluator, history, _ = run
    declared = {spec.key for spec in evaluator.values()}
    for key in ("spread", "nearest_sample", "explained", "proportions"):
        assert key in declared
        assert history[-1][key] >= 0
    assert history[-1]["explained"] > 0.5


def test_figure_of_the_diagnosis_has_the_finding_as_its_title(run):
    evaluator, history, found = run
    evaluation, findings = found[-1]
    drawn = evaluator.presenter().figures(_with(evaluation, findings), history, Samples(DARK, torch.arange(120)))
    figure = drawn["diagnosis"]()
    assert str(findings[0]).startswith(figure.texts[0].get_text().split("\n")[0].rstrip("…"))
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert "real" in titles
    assert "real, with the fault put in" in titles


def test_state_keeps_what_was_wrong_and_since_when(run):
    evaluator, history, _ = run
    again = fitted(fault_models=[FADED])
    again.load_state_dict(evaluator.state_dict())
    again.is_last = True
    _, findings = evaluated(again, DARK, list(history))
    assert findings[0].text.endswith("Since epoch 0.")


def test_an_evaluation_between_begins_with_the_last_diagnosis_while_regions_differ():
    """That all of them do tells nobody what to do."""
    evaluator, history = fitted(fault_models=[FADED]), []
    (_, first), (_, second) = (evaluated(evaluator, DARK, history) for _ in range(2))
    assert second[0].text == f"{first[0].text} Diagnosed at epoch 0."
    assert any(x.text.startswith("cluster_2 (right half) differs from real images") for x in second)


def test_odd_samples_of_before_are_not_what_an_evaluation_begins_with(monkeypatch):
    """They are as many as chance brings, and a region differs now."""
    monkeypatch.setattr("genmonitor.evaluation.regions.diagnosis_schedule.CHANGED", math.inf)
    evaluator, history = fitted(fault_models=[FADED]), []
    (_, first), (_, second) = (evaluated(evaluator, images, history) for images in (GOOD, DARK))
    assert any(x.measure == "strange_samples" for x in first)
    assert second[0].text.startswith("cluster_2 (right half) differs from real images")


def test_an_evaluation_without_a_diagnosis_repeats_the_last_after_what_is_new(monkeypatch):
    monkeypatch.setattr("genmonitor.evaluation.regions.diagnosis_schedule.CHANGED", math.inf)
    evaluator, history = fitted(fault_models=[FADED]), []
    (_, first), (_, second), (_, third) = (evaluated(evaluator, images, history) for images in (DARK, GOOD, GOOD))
    assert second[0].text.startswith("No evidence of a difference from real images")
    assert second[1].text == f"{first[0].text} Diagnosed at epoch 0."
    assert ["explained" in record for record in history] == [True, False, True]
    assert not any(finding.kinds for finding in third)


@pytest.mark.parametrize(("images", "diagnosed"), [((GOOD, DARK), True), ((DARK, GOOD), True), ((DARK, DIM), False)])
def test_what_changed_much_is_diagnosed_before_its_turn(images, diagnosed):
    """What was said of the images before would not be true of these."""
    evaluator, history = fitted(fault_models=[FADED]), []
    evaluated(evaluator, images[0], history)
    again = fitted(fault_models=[FADED])
    again.load_state_dict(evaluator.state_dict())
    evaluated(again, images[1], history)
    assert ["explained" in record for record in history] == [True, diagnosed]


@pytest.mark.parametrize(("ratio", "due"), [(0.99, False), (1.01, True), (-0.99, False), (-1.01, True)])
def test_a_region_whose_error_ratio_changed_so_many_times_is_diagnosed(ratio, due):
    evaluator = fitted(fault_models=[FADED])
    evaluation, _ = evaluated(evaluator, DARK, [])
    same = {f"cluster_{i}": evaluation.values[f"error_ratio_{i}"] for i in (1, 2)}
    assert not evaluator.diagnoses.due(same)
    times = (CHANGED * abs(ratio)) ** math.copysign(1, ratio)
    assert evaluator.diagnoses.due(same | {"cluster_2": times * same["cluster_2"]}) is due


def test_a_fault_that_moved_to_another_region_is_diagnosed():
    evaluator, history = fitted(fault_models=[FADED]), []
    evaluated(evaluator, DARK, history)
    _, findings = evaluated(evaluator, DARK.flip(3), history)
    assert findings[0].area.mask[:, :3].any()
    assert "Diagnosed" not in findings[0].text


def test_error_ratios_that_chance_gives_do_not_make_a_diagnosis_due():
    evaluator = fitted(fault_models=[FADED])
    evaluated(evaluator, GOOD, [])
    ratios = dict.fromkeys(evaluator.diagnoses.ratios, 0.0)
    evaluator.diagnoses.ratios = dict.fromkeys(evaluator.diagnoses.ratios, 1.0)
    assert len(ratios) == 3
    assert not evaluator.diagnoses.due(ratios)


def test_a_diagnosis_that_failed_is_not_tried_again_before_its_turn(monkeypatch):
    evaluator, history, calls = fitted(fault_models=[FADED]), [], []
    evaluated(evaluator, GOOD, history)

    def fails(*args, **options):
        calls.append(len(history))
        raise MemoryError

    monkeypatch.setattr("genmonitor.evaluation.pixel_clusters.diagnose", fails)
    for _ in range(4):
        evaluated(evaluator, DARK, history)
    assert calls == [1, 4]  # at once, since much has changed


def test_the_last_evaluation_has_a_diagnosis():
    evaluator, history = fitted(fault_models=[FADED]), []
    for evaluator.is_last in (False, True):
        evaluated(evaluator, DARK, history)
    assert ["explained" in record for record in history] == [True, True]


def test_diagnoses_become_rarer_while_nothing_changes():
    evaluator, history = fitted(fault_models=[FADED]), []
    for _ in range(8):
        evaluated(evaluator, DARK, history)
    assert [i + 1 for i, record in enumerate(history) if "explained" in record] == [1, 3, 7]


@pytest.mark.parametrize("images", [DARK, DARK[:60]], ids=["diagnosed", "too few for a diagnosis"])
def test_figures_are_drawn_when_a_diagnosis_is_due(images):
    evaluator, history = fitted(fault_models=[FADED]), []
    samples = Samples(images, torch.arange(len(images)))
    found = [_with(*evaluated(evaluator, images, history)) for _ in range(2)]
    drawn = [evaluator.presenter().figures(evaluation, history, samples).keys() for evaluation in found]
    assert ["samples" in names for names in drawn] == [True, False]
    assert [bool(names) for names in drawn] == [True, False]


@pytest.mark.parametrize(("images", "said"), [(GOOD, False), (DARK, True)])
def test_what_may_be_chance_is_said_only_where_a_region_differs(monkeypatch, images, said):
    """Map, image and regions are tests of their own, each of which errs in one evaluation of twenty."""
    found = diagnose(fake=DARK, real=REAL[:120], fault_models=[FADED])
    doubtful = replace(found, findings=tuple(replace(x, p=0.03) for x in found.findings), p=0.12)
    assert doubtful.findings[0].fine is False
    monkeypatch.setattr("genmonitor.evaluation.pixel_clusters.diagnose", lambda *args, **options: doubtful)
    evaluator, history = fitted(fault_models=[FADED]), []
    evaluation, findings = evaluated(evaluator, images, history)
    assert bool(findings[0].kinds) is said
    drawn = evaluator.presenter().figures(_with(evaluation, findings), history, Samples(images, torch.arange(120)))
    title = drawn["diagnosis"]().texts[0].get_text()
    assert title.startswith("No evidence of a difference from real images") is not said


def test_a_fault_model_that_fails_costs_its_line():
    def fails(images, strength, generator):
        raise RuntimeError("no such file")

    evaluator = fitted(fault_models=[UsersFault("mine", "px", (1.0,), fails), FADED])
    evaluation, findings = evaluated(evaluator, DARK, [])
    assert [kind.name for kind in findings[0].kinds] == ["faded"]
    assert any("the fault model 'mine' failed: RuntimeError: no such file" in note for note in evaluation.notes)


def test_a_diagnosis_that_fails_costs_itself(monkeypatch):
    def fails(*arguments, **options):
        raise MemoryError("out of memory")

    evaluator = fitted()
    monkeypatch.setattr("genmonitor.evaluation.pixel_clusters.diagnose", fails)
    evaluation, findings = evaluated(evaluator, DARK, [])
    assert "the diagnosis failed: MemoryError: out of memory" in evaluation.notes
    assert findings[0].text.startswith("cluster_2 (right half) differs from real images")
    assert "p_2" in evaluation.values


def test_a_diagnosis_that_fails_leaves_what_was_wrong_before(monkeypatch):
    def fails(*arguments, **options):
        raise MemoryError("out of memory")

    evaluator, history = fitted(fault_models=[FADED]), []
    _, before = evaluated(evaluator, DARK, history)
    monkeypatch.setattr("genmonitor.evaluation.pixel_clusters.diagnose", fails)
    _, after = evaluated(evaluator, DARK, history)
    assert after[0].text == f"{before[0].text} Diagnosed at epoch 0."


def test_fewer_than_100_images_are_not_diagnosed():
    evaluator = fitted()
    evaluation, _ = evaluated(evaluator, DARK[:99], [])
    assert evaluation.diagnosed.diagnosis is None
    assert "spread" not in measured(evaluation)


def _with(evaluation, findings):
    return replace(evaluation, findings=findings)


def test_copied_training_images_are_said_first_by_their_places_in_the_data():
    evaluator, history = fitted(fault_models=[FADED]), []
    known = evaluator.fitted.nearest
    samples = GOOD.clone()
    samples[:40] = known.images[60:100] + 1e-4
    evaluation, findings = evaluated(evaluator, samples, history)
    assert findings[0].text.startswith("Whole image: 3")
    said = f"near copies of the {len(known.images)} real images searched (p < 0.0001). Copied real images: "
    assert said in findings[0].text
    assert evaluation.values["copied"] == pytest.approx(1 / 3, abs=0.03)
    assert {(i, known.indices[60 + i]) for i in range(40)} <= set(evaluation.copies)
    assert torch.equal(REAL[known.indices[60:100]], known.images[60:100])


def test_copies_at_two_diagnoses_in_a_row_are_an_alert_once():
    evaluator, history = fitted(fault_models=[FADED]), []
    evaluator.is_last = True  # so that each has a diagnosis
    copying = GOOD.clone()
    copying[:40] = evaluator.fitted.nearest.images[60:100] + 1e-4
    alerts = []
    for samples in (copying, GOOD, copying, copying, copying):
        evaluated(evaluator, samples, history, alerts)
    assert [sum(x.measure == "copied" for x in some) for some in alerts] == [0, 0, 0, 1, 0]
    assert "near copies of the " in alerts[3][0].text
    assert alerts[3][0].text.endswith("Since epoch 2.")
    other = fitted(fault_models=[FADED])
    other.load_fit_state(evaluator.fit_state())
    assert other.diagnoses.copied == 3


def test_what_got_visibly_worse_is_said_at_once_and_first():
    evaluator, history = fitted(fault_models=[FADED]), []
    collapsed = GOOD.mean(0) + 0.1 * (GOOD - GOOD.mean(0))
    assert evaluated(evaluator, GOOD, history)[0].look.finding is None
    evaluation, findings = evaluated(evaluator, collapsed, history)
    assert findings[0] == replace(evaluation.look.finding, since=1.0)
    assert findings[0].text.startswith("Visibly worse than at epoch 0, its best: ")
    assert ", was " in findings[0].text
    assert findings[0].p == 0.001
    resumed = fitted(fault_models=[FADED])
    resumed.load_fit_state(evaluator.fit_state())
    resumed.fit(ImageSet(REAL), GOOD[:16], SingleProcess())
    assert evaluated(resumed, collapsed, list(history))[0].look.finding.text == findings[0].text
    assert evaluated(evaluator, halves(120, seed=2), history)[0].look.finding is None
