# SPDX-License-Identifier: Apache-2.0
"""DisagreementEvaluator without a Trainer."""

import json

import pytest
import torch
from _helpers.evaluations import (
    ScriptedCollective,
    disagreement_evaluator,
    evaluate,
    fit,
    labeled,
    measured,
    message,
    of_classes,
    samples_of,
)
from matplotlib.figure import Figure

from genmonitor import CosineKernel, GaussianKernel
from genmonitor.distributed import FailedElsewhereError
from genmonitor.evaluation import DisagreementSettings, ImageSet, SingleProcess
from genmonitor.evaluation.evaluator import SettingsChangedError, commit_evaluation
from genmonitor.evaluation.settings import ONE_HOT_KERNEL
from genmonitor.functional import prompt_split

LABELS = torch.arange(24) % 3
REAL = labeled(60)
START, LATER = of_classes(LABELS, seed=1), of_classes(LABELS, seed=2)
NO_REAL = ImageSet()


def changed(images, label=2):
    """Return images of which those of a class are their negatives."""
    return torch.where((label == LABELS)[:, None, None, None], 1 - images, images)


def fitted(reference="data", real=REAL, **settings):
    evaluator = disagreement_evaluator(reference=reference, **settings)
    fit(evaluator, real, START)
    if evaluator.needs_first_samples:
        evaluator.take_first_samples(samples_of(START), SingleProcess())
    return evaluator


@pytest.fixture(scope="module")
def shared():
    """An evaluator against the start, its history of two evaluations, and the last of these: class 2 has changed."""
    evaluator, history = fitted("start"), []
    evaluate(evaluator, START, history)
    return evaluator, history, evaluate(evaluator, changed(START), history)


def test_disagreement_values_are_those_of_prompt_split(shared):
    prompts = torch.eye(3)[LABELS]
    expected = prompt_split(
        changed(START).flatten(1),
        prompts,
        START.flatten(1),
        prompts,
        output_kernel=GaussianKernel(1.0),
        prompt_kernel=ONE_HOT_KERNEL,
        num_modes=8,
    )
    values = shared[2].values
    assert values["total"] == pytest.approx(float(expected.total))
    assert values["top_1"] == pytest.approx(float(expected.eigenvalues[0]))
    assert values["bottom_1"] == pytest.approx(float(expected.eigenvalues[-1]))


def test_disagreement_is_none_where_nothing_changed(shared):
    assert shared[1][0]["total"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("reference", ["start", "previous"])
def test_disagreement_names_the_prompt_that_changed(reference):
    prompt, part = evaluate(fitted(reference), changed(START)).found.changed[0]
    assert prompt == 2
    assert part > 0.9


def test_disagreement_with_data_names_the_prompt_that_is_wrong():
    found = evaluate(fitted("data"), changed(START)).found
    assert found.changed[0][0] == 2


def test_disagreement_with_previous_moves_on_with_each_commit():
    evaluator, history = fitted("previous"), []
    evaluate(evaluator, changed(START), history)
    assert evaluate(evaluator, changed(START), history).values["total"] == pytest.approx(0, abs=1e-6)


def test_disagreement_with_previous_waits_for_the_commit():
    evaluator = fitted("previous")
    first, again = (measured(evaluate(evaluator, changed(START))) for _ in range(2))
    assert first == again


def test_disagreement_with_previous_stays_where_another_process_cannot_commit():
    evaluator = fitted("previous")
    first = evaluate(evaluator, changed(START))
    with pytest.raises(FailedElsewhereError):
        commit_evaluation(evaluator, first, [first.values], ScriptedCollective(other=False))
    assert measured(evaluate(evaluator, changed(START))) == measured(first)


def test_disagreement_takes_real_images_in_prompt_order():
    evaluator = fitted("data", output_encoder=lambda images: images[:, 0].mean(2))
    reference = evaluate(evaluator, START).reference
    assert torch.equal(reference.features.argmax(1), LABELS)  # the bright row of each class


def test_disagreement_values_are_all_declared(shared):
    evaluator, _, evaluation = shared
    assert evaluation.values.keys() - {"sampling_seconds", "metric_seconds"} <= {
        spec.key for spec in evaluator.values()
    }


def test_disagreement_message_names_the_prompt(shared):
    evaluator, history, evaluation = shared
    assert "'2' (" in message(evaluator, evaluation, history)


def test_disagreement_summary_lists_the_prompt(shared):
    evaluator, history, evaluation = shared
    said = evaluator.presenter().summary(evaluator.findings(evaluation, history), history)
    assert "mostly for '2'" in said


def test_disagreement_figures_are_drawn(shared):
    evaluator, history, evaluation = shared
    drawn = evaluator.presenter().figures(evaluation, history, samples_of(changed(START)))
    assert drawn.keys() == {"modes"}
    assert all(isinstance(draw(), Figure) for draw in drawn.values())


def test_disagreement_table_shows_both_sides(shared):
    evaluator, _, evaluation = shared
    table = evaluator.presenter().tables(evaluation)["prompts"]
    assert list(table.columns) == ["prompt", "part", "p", "model", "the start of training"]
    assert table.rows[0][0] == "2"
    assert table.rows[0][3].shape == table.rows[0][4].shape


def test_disagreement_manifest_is_json(shared):
    evaluator, _, _ = shared
    manifest = json.loads(json.dumps(evaluator.manifest()))
    assert (manifest["reference"], manifest["reference_samples"]) == ("start", 24)


# state


@pytest.mark.parametrize("reference", ["data", "start", "previous"])
def test_disagreement_state_gives_the_same_values_again(reference, tmp_path):
    first, second = fitted(reference), disagreement_evaluator(reference=reference)
    evaluate(first, LATER, [])
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert not second.needs_first_samples
    fit(second, REAL, START)
    assert measured(evaluate(second, changed(LATER))) == measured(evaluate(first, changed(LATER)))


def test_disagreement_state_keeps_pictures_of_the_reference(shared):
    evaluator, _, evaluation = shared
    again = disagreement_evaluator(reference="start")
    again.load_state_dict(evaluator.state_dict())
    fit(again, REAL, START)
    shown = evaluate(again, START).reference.shown
    assert torch.allclose(shown, evaluation.reference.shown, atol=1e-3)  # they are kept in half precision


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"reference": "previous"}, "reference"),
        ({"num_modes": 3}, "num_modes"),
        ({"n_samples": 12}, "n_samples"),
        ({"seed": 1}, "seed"),
        ({"kernel": GaussianKernel(2.0)}, "kernel"),
        ({"output_encoder": torch.nn.Flatten()}, "output_encoder"),
    ],
)
def test_disagreement_state_of_other_settings_is_refused(shared, settings, name):
    other = disagreement_evaluator(**({"reference": "start"} | settings))
    with pytest.raises(SettingsChangedError, match=f"but these differ: {name}"):
        other.load_state_dict(shared[0].state_dict())
    assert other.needs_first_samples  # nothing is taken over


def test_disagreement_fit_refuses_another_encoders_state():
    saved = fitted("start", output_encoder=torch.nn.Flatten()).state_dict()
    other = disagreement_evaluator(reference="start", output_encoder=torch.nn.Flatten())
    other.load_state_dict(saved)
    with pytest.raises(ValueError, match=r"`output_encoder` to return 16 values .* but got 9"):
        fit(other, NO_REAL, torch.rand(8, 1, 3, 3))


def test_disagreement_forget_asks_for_first_samples_again():
    evaluator = fitted("start")
    evaluator.forget()
    assert evaluator.needs_first_samples


# what it is given


def test_disagreement_with_data_needs_no_first_samples():
    assert not disagreement_evaluator(reference="data").needs_first_samples


@pytest.mark.parametrize(("n_prompts", "expected"), [(3, 1002), (10, 1000), (1200, 1200)])
def test_disagreement_n_samples_are_as_many_of_each_prompt(n_prompts, expected):
    assert DisagreementSettings.of(range(n_prompts)).n_samples == expected


def test_disagreement_kernel_takes_its_width_from_real_images():
    evaluator = fitted("start", kernel=GaussianKernel())
    chosen = ImageSet(REAL).to_compare(24, 0, (1, 4, 4))
    assert evaluator.kernel == GaussianKernel().resolved(chosen.read(range(24)).flatten(1))


def test_disagreement_prompt_kernel_suits_the_kernel():
    assert disagreement_evaluator(kernel=CosineKernel()).prompt_kernel == CosineKernel()
    assert disagreement_evaluator(kernel=GaussianKernel()).prompt_kernel == ONE_HOT_KERNEL


@pytest.mark.parametrize(
    ("settings", "real", "message"),
    [
        ({"reference": "data"}, NO_REAL, "Expected real images"),
        ({"reference": "data", "prompts": [0, 7]}, REAL, "a real image of each prompt, .* such as 7"),
        ({"reference": "start", "kernel": GaussianKernel()}, NO_REAL, "Expected a `kernel` with its gamma"),
    ],
)
def test_disagreement_fit_refuses(settings, real, message):
    with pytest.raises(ValueError, match=message):
        fit(disagreement_evaluator(**settings), real, START)
