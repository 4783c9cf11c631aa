# SPDX-License-Identifier: Apache-2.0
"""DiversityEvaluator without a Trainer."""

import json

import pytest
import torch
from _helpers.evaluations import (
    diversity_evaluator,
    evaluate,
    fit,
    labeled,
    measured,
    message,
    of_classes,
    samples_of,
)
from matplotlib.figure import Figure
from torch import nn

from genmonitor import PRDC, GaussianKernel, PixelCKA, PromptSplit, ScendiScore, VendiScore
from genmonitor.encoders.feature_metrics import NEIGHBORS
from genmonitor.evaluation import DiversitySettings, ImageSet, SingleProcess
from genmonitor.evaluation.evaluator import SettingsChangedError
from genmonitor.functional import (
    calibrate,
    conditional_vendi_score,
    precision_recall_density_coverage,
    prompt_split,
    rke_score,
    scendi_score,
    vendi_score,
    w1kp_score,
)

LABELS = torch.arange(24) % 3
REAL = labeled(40).tensors[0]
FAKE = of_classes(LABELS, seed=1)
NO_REAL = ImageSet()
CALIBRATION = calibrate(REAL.flatten(1))


def fitted(real=REAL, **settings):
    evaluator = diversity_evaluator(**settings)
    fit(evaluator, real, FAKE)
    return evaluator


@pytest.fixture(scope="module")
def shared():
    """A fitted evaluator with a calibration, its history of two evaluations, and the last of these."""
    evaluator, history = fitted(calibration=CALIBRATION), []
    evaluate(evaluator, of_classes(LABELS, seed=2), history)
    return evaluator, history, evaluate(evaluator, FAKE, history)


def test_diversity_values_are_the_scores_of_the_samples(shared):
    values = shared[2].values
    outputs, prompts = FAKE.flatten(1), torch.eye(3)[LABELS]
    expected = scendi_score(outputs, prompts) | {"vendi": vendi_score(outputs), "rke": rke_score(outputs)}
    expected |= conditional_vendi_score(outputs, prompts)
    assert {name: values[name] for name in expected} == pytest.approx({k: float(v) for k, v in expected.items()})


def test_prompts_that_say_nothing_explain_what_one_prompt_for_all_does():
    told = torch.arange(300) % 3
    images, silent = of_classes(told), told[torch.randperm(300, generator=torch.Generator().manual_seed(0))]
    found = [evaluate(fitted(prompts=x.tolist(), n_samples=300), images).values for x in (told, silent)]
    of_one = float(scendi_score(images.flatten(1), torch.ones(300, 1))["prompt_share"])
    assert [x["one_prompt_share"] for x in found] == pytest.approx([of_one] * 2)
    assert found[0]["prompt_share"] - of_one > 0.2
    assert 0 <= found[1]["prompt_share"] - of_one < 0.02


def test_standard_errors_are_what_the_scores_vary_by():
    labels = torch.arange(200) % 3
    evaluator = fitted(n_samples=200)
    draws = [samples_of(of_classes(labels, seed=seed)) for seed in range(30)]
    errors = [evaluator.standard_errors(draw) for draw in draws[:10]]
    values = [evaluate(evaluator, draw.images).values for draw in draws]
    for name in ("vendi", "rke", "scendi", "scendi_prompt", "prompt_share"):
        varies = torch.tensor([value[name] for value in values]).std()
        said = torch.tensor([error[f"{name}_error"] for error in errors]).mean()
        assert 0.6 < said / varies < 1.7, name


def test_standard_errors_without_prompts_are_of_the_outputs():
    assert fitted(prompts=None).standard_errors(samples_of(FAKE)).keys() == {"vendi_error", "rke_error"}


def test_standard_errors_of_large_covariances_are_left_out(monkeypatch):
    monkeypatch.setattr("genmonitor.evaluation.diversity.MAX_REPEATED", 15)
    assert fitted().standard_errors(samples_of(FAKE)) == {}


def test_diversity_values_hold_the_likeness_to_real_images(shared):
    evaluator = fitted(labeled(24).tensors[0])  # all of them are compared with
    expected = precision_recall_density_coverage(FAKE.flatten(1), labeled(24).tensors[0].flatten(1), k=NEIGHBORS)
    values = evaluate(evaluator, FAKE).values
    assert {name: values[name] for name in expected} == {name: float(value) for name, value in expected.items()}


def test_diversity_values_hold_what_real_images_get(shared):
    values = shared[2].values
    assert values["real_vendi"] > values["real_rke"] > 1


def test_diversity_values_hold_w1kp_with_a_calibration(shared):
    expected = w1kp_score(FAKE.flatten(1), LABELS, calibration=CALIBRATION)
    assert shared[2].values["w1kp"] == pytest.approx(float(expected["w1kp"]), rel=1e-5)


def test_diversity_values_lack_w1kp_without_a_calibration():
    evaluator = fitted()
    assert "w1kp" not in evaluate(evaluator, FAKE).values
    assert "w1kp" not in {spec.key for spec in evaluator.values()}


def test_diversity_of_random_features_splits_vendi_by_prompts():
    values = evaluate(fitted(kernel=GaussianKernel(), num_features=16), FAKE).values
    assert values["conditional_vendi"] * values["information_vendi"] == pytest.approx(values["vendi"])
    assert min(values["conditional_vendi"], values["information_vendi"]) > 1


def test_diversity_of_many_samples_lacks_the_spectrum_of_pairs(monkeypatch):
    monkeypatch.setattr("genmonitor.evaluation.diversity.MAX_PAIRS", 23)
    evaluator = fitted()
    values = evaluate(evaluator, FAKE).values
    assert "scendi" in values
    assert not {"conditional_vendi", "information_vendi"} & values.keys()
    assert "conditional_vendi" not in {spec.key for spec in evaluator.values()}


def test_diversity_evaluation_is_repeatable(shared):
    evaluator, _, evaluation = shared
    assert measured(evaluate(evaluator, FAKE)) == measured(evaluation)


def test_diversity_shares_are_parts_of_what_prompts_do_not_explain(shared):
    shares = shared[2].shares
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1 + 1e-6


def test_an_evaluation_that_fails_keeps_no_samples(monkeypatch):
    evaluator = fitted()
    monkeypatch.setattr(evaluator.metric, "compute", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate(evaluator, FAKE)
    assert (len(evaluator._samples.images), len(evaluator._outputs)) == (0, 0)


def test_diversity_mode_ends_are_samples(shared):
    ends = shared[2].ends
    assert torch.equal(ends.images, FAKE[ends.indices])


def test_diversity_encodes_each_sample_once():
    seen = []

    def encoder(images):
        seen.append(len(images))
        return images.flatten(1)

    evaluator = fitted(output_encoder=encoder, batch_size=10, calibration=CALIBRATION)
    seen.clear()
    evaluate(evaluator, FAKE)
    assert seen == [10, 10, 4]


def test_diversity_values_are_all_declared(shared):
    evaluator, _, evaluation = shared
    assert evaluation.values.keys() - {"sampling_seconds", "metric_seconds"} <= {
        spec.key for spec in evaluator.values()
    }


def test_diversity_message_counts_modes(shared):
    evaluator, history, evaluation = shared
    assert f"{evaluation.values['vendi']:.3g} modes in 24 images" in message(evaluator, evaluation, history)


def test_diversity_figures_are_drawn(shared):
    evaluator, history, evaluation = shared
    drawn = evaluator.presenter().figures(evaluation, history, samples_of(FAKE))
    assert drawn.keys() == {"modes"}
    assert all(isinstance(draw(), Figure) for draw in drawn.values())


def test_settings_for_the_manifest_are_json_and_hold_the_calibration(shared):
    evaluator, _, _ = shared
    saved = json.loads(json.dumps(evaluator.settings.to_manifest()))["calibration"]
    assert saved["distances"] == CALIBRATION.distances.tolist()


# state

WIDTHS = {"kernel": GaussianKernel(), "prompt_kernel": GaussianKernel(), "num_features": 16}


def test_diversity_state_keeps_the_widths(tmp_path):
    first, second = fitted(**WIDTHS), diversity_evaluator(**WIDTHS)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    fit(second, REAL, FAKE)
    assert second.kernel == first.kernel
    assert measured(evaluate(second, FAKE)) == measured(evaluate(first, FAKE))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"n_samples": 12}, "n_samples"),
        ({"seed": 1}, "seed"),
        ({"rcond": 1e-3}, "rcond"),
        ({"num_features": 8}, "num_features"),
        ({"kernel": GaussianKernel(2.0)}, "kernel"),
        ({"calibration": CALIBRATION}, "calibration"),
    ],
)
def test_diversity_state_of_other_settings_is_refused(settings, name):
    saved = fitted(**WIDTHS).state_dict()
    other = diversity_evaluator(**(WIDTHS | settings))
    before = other.kernel, other.prompt_kernel
    with pytest.raises(SettingsChangedError, match=f"but these differ: {name}"):
        other.load_state_dict(saved)
    assert (other.kernel, other.prompt_kernel) == before  # nothing is taken over


# what it is given


def test_diversity_freezes_its_encoders():
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    evaluator = fitted(output_encoder=net)
    assert evaluator.networks() == {"output_encoder": net}
    assert not any(parameter.requires_grad for parameter in net.parameters())


def test_diversity_without_real_images_lacks_the_likeness():
    evaluator = diversity_evaluator()
    (note,) = fit(evaluator, NO_REAL, FAKE).notes
    assert note.startswith("precision, recall, density and coverage are not measured. Expected real images")
    assert "precision" not in evaluate(evaluator, FAKE).values


def test_diversity_figures_without_real_images_are_drawn():
    evaluator, history = fitted(NO_REAL), []
    evaluation = evaluate(evaluator, FAKE, history)
    assert evaluator.presenter().figures(evaluation, history, samples_of(FAKE)).keys() == {
        "modes",
    }


def test_diversity_notes_few_real_images():
    report = fit(diversity_evaluator(), REAL[:10], FAKE)
    assert report.notes == ("only 10 real images available for comparison with 24 generated ones",)


@pytest.mark.parametrize(
    ("n_prompts", "calibration", "expected"), [(3, None, 1000), (1200, None, 1200), (800, CALIBRATION, 1600)]
)
def test_diversity_n_samples_suit_the_prompts(n_prompts, calibration, expected):
    assert DiversitySettings.of(range(n_prompts), calibration=calibration).n_samples == expected


@pytest.mark.parametrize(
    ("settings", "real", "message"),
    [
        ({}, REAL[:5], "more than 5 real and generated images"),
        ({}, torch.rand(20, 3, 4, 4), r"real images of shape \[1, 4, 4\] like the generated ones"),
        ({"kernel": GaussianKernel(), "num_features": 8}, NO_REAL, "Expected a `kernel` with its gamma"),
        ({"output_encoder": lambda x: x.flatten(1).repeat(1, 200)}, REAL, "at most 3072 features of each output"),
        ({"calibration": calibrate(torch.rand(20, 9))}, REAL, "with 9 values"),
    ],
)
def test_diversity_fit_refuses(settings, real, message):
    with pytest.raises(ValueError, match=message):
        fitted(real, **settings)


# generators without prompts


@pytest.fixture(scope="module")
def unprompted():
    """A fitted evaluator without prompts, its history of one evaluation, and that."""
    evaluator, history = fitted(prompts=None), []
    return evaluator, history, evaluate(evaluator, FAKE, history)


def test_diversity_without_prompts_is_the_scores_of_the_outputs(unprompted):
    values = unprompted[2].values
    outputs = FAKE.flatten(1)
    assert values["vendi"] == pytest.approx(float(vendi_score(outputs)))
    assert values["rke"] == pytest.approx(float(rke_score(outputs)))
    assert {"precision", "recall", "real_vendi"} < values.keys()
    assert not any("prompt" in name or "scendi" in name for name in values)


def test_diversity_modes_without_prompts_are_those_of_pca(unprompted):
    evaluation = unprompted[2]
    x = nn.functional.normalize(FAKE.flatten(1).double())
    _, spread, directions = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    assert evaluation.shares[:3] == pytest.approx((spread**2 / spread.square().sum())[:3].tolist(), rel=1e-4)
    projected = (x - x.mean(0)) @ directions[0]
    extremes = {int(projected.argmax()), int(projected.argmin())}
    assert {int(evaluation.ends.indices[0][0]), int(evaluation.ends.indices[0][-1])} == extremes


def test_diversity_without_prompts_speaks_of_none(unprompted):
    evaluator, history, evaluation = unprompted
    assert "prompt" not in message(evaluator, evaluation, history)
    assert evaluation.values.keys() - {"sampling_seconds", "metric_seconds"} <= {
        spec.key for spec in evaluator.values()
    }
    drawn = evaluator.presenter().figures(evaluation, history, samples_of(FAKE))
    assert drawn.keys() == {"modes"}
    texts = [
        text.get_text()
        for figure in [draw() for draw in drawn.values()]
        for text in (*figure.texts, *figure.axes[0].texts)
    ]
    assert not any("rompt" in text for text in texts)


def test_collapse_without_prompts_is_told_of():
    evaluator, history, alerts = fitted(prompts=None), [], []
    one = FAKE[:1].expand(24, -1, -1, -1)
    for i, images in enumerate([of_classes(LABELS, 2), of_classes(LABELS, 3), one, one + 1e-3 * of_classes(LABELS, 4)]):
        evaluation = evaluate(evaluator, images)
        history.append({"epoch": i, "step": i, **evaluation.values})
        alerts.append(evaluator.commit(evaluation, history))
    assert [len(found) for found in alerts] == [0, 0, 0, 1]
    assert alerts[-1][0].text.startswith("All samples lost their variety since epoch 2: spread ")


@pytest.mark.parametrize(
    "of_prompts",
    [{"prompt_encoder": nn.Identity()}, {"prompt_kernel": GaussianKernel(1.0)}, {"calibration": CALIBRATION}],
)
def test_diversity_refuses_what_needs_prompts(of_prompts):
    with pytest.raises(ValueError, match=f"Expected `prompts` with `{next(iter(of_prompts))}`, but got None"):
        diversity_evaluator(None, **of_prompts)


class CountingEncoder(nn.Flatten):
    seen = 0

    def forward(self, images):
        self.seen += len(images)
        return super().forward(images) + 0.1


def test_extra_metrics_get_the_features_that_are_there():
    encoder = CountingEncoder()
    ken = PromptSplit(GaussianKernel(1.0), num_modes=2)
    extra = {"Vendi_2": VendiScore(order=2), "near": PRDC(k=3), "novel": ken}
    evaluator = fitted(labeled(24).tensors[0], output_encoder=encoder, extra_metrics=extra)
    encoder.seen = 0
    values = [evaluate(evaluator, FAKE).values for _ in range(2)][1]
    assert encoder.seen == 2 * len(FAKE)
    outputs, real = FAKE.flatten(1) + 0.1, labeled(24).tensors[0].flatten(1) + 0.1
    assert values["vendi_2"] == pytest.approx(float(vendi_score(outputs, order=2)))
    assert values["vendi_2"] == pytest.approx(values["rke"])
    for name, value in precision_recall_density_coverage(outputs, real, k=3).items():
        assert values[f"near_{name}"] == float(value)
    novel = prompt_split(outputs, None, real, None, output_kernel=GaussianKernel(1.0))
    assert values["novel_total"] == pytest.approx(float(novel.total), abs=1e-6)
    assert "novel_eigenvalues" not in values
    assert {spec.key: spec.better for spec in evaluator.values()}["vendi_2"] == "high"
    assert evaluator.unserializable_args() == ["output_encoder", "extra_metrics"]


@pytest.mark.parametrize(
    ("metric", "settings", "message"),
    [
        (VendiScore(GaussianKernel()), {}, r"features \[16\] .* m raised ValueError: GaussianKernel.* has no gamma"),
        (ScendiScore(), {}, "missing 1 required positional argument: 'prompts'"),
        (PixelCKA(GaussianKernel(1.0)), {}, r"m raised ValueError: .*\[8, 16\]"),
    ],
)
def test_extra_metrics_that_features_do_not_suit_are_refused(metric, settings, message):
    with pytest.raises(ValueError, match=message):
        fitted(extra_metrics={"m": metric}, **settings)


def test_extra_metrics_of_both_sides_need_real_images():
    evaluator = diversity_evaluator(extra_metrics={"m": PRDC()})
    with pytest.raises(ValueError, match=r"m raised ValueError: there are no real images .* Give `real_images=`"):
        evaluator.fit(NO_REAL, FAKE[:8], SingleProcess())


@pytest.mark.parametrize("name", ["Vendi", "precision", "w1kp", "conditional", "spread"])
def test_extra_metrics_refuse_the_evaluators_own_names(name):
    """A dictionary of a metric called spread could give spread_1."""
    with pytest.raises(ValueError, match=f"not the monitor's own, but got '{name}'"):
        fitted(labeled(24).tensors[0], extra_metrics={name: VendiScore()})


def test_diversity_of_one_prompt_is_that_of_its_samples():
    evaluator = diversity_evaluator(prompts=["a cat"], prompt_encoder=lambda texts: torch.ones(len(texts), 1))
    fit(evaluator, NO_REAL, FAKE)
    values = evaluate(evaluator, FAKE).values
    assert "prompts" not in values
    assert values["conditional_vendi"] == pytest.approx(values["vendi"])
