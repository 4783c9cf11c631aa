# SPDX-License-Identifier: Apache-2.0
"""ScendiScore; what every metric owes torchmetrics and two processes are in test_citizens and test_sync."""

import math
import warnings

import numpy as np
import pytest
import torch
from _helpers import entropy_references as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from genmonitor import GaussianKernel, LaplacianKernel, ScendiScore
from genmonitor.functional import scendi_score

FORMS = {
    "cosine": {},
    "fourier": {
        "kernel": GaussianKernel(0.1),
        "prompt_kernel": GaussianKernel(0.2),
        "num_features": 4,
        "rcond": 1e-3,
    },
    "exact": {"kernel": GaussianKernel(0.1), "rcond": 1e-3},
}
forms = pytest.mark.parametrize("form", FORMS)


def draw(n: int, d: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pairs(n: int, d: int = 4, e: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Outputs that follow their prompts in part."""
    prompts = draw(n, e, seed)
    return prompts @ draw(e, d, 1000) + draw(n, d, seed + 1), prompts


def fed(metric: ScendiScore, outputs: Tensor, prompts: Tensor, batch: int | list[int] = 1000) -> ScendiScore:
    for x, t in zip(outputs.split(batch), prompts.split(batch), strict=True):
        metric.update(x, t)
    return metric


def floats(score: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in score.items()}


def unit(x: Tensor) -> np.ndarray:
    return twin.unit(x.numpy())


@forms
@settings(max_examples=10, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(0, 9), min_size=2, max_size=6), seed=st.integers(0, 99), data=st.data())
def test_any_batches_in_any_order_say_what_the_function_says(form, sizes, seed, data):
    sizes = [30, *sizes]
    outputs, prompts = pairs(sum(sizes), seed=seed)
    order = data.draw(st.permutations(range(len(outputs))))
    found = fed(ScendiScore(**FORMS[form]), outputs[order], prompts[order], sizes).compute()
    expected = scendi_score(outputs, prompts, **FORMS[form])
    assert floats(found) == pytest.approx(floats(expected), rel=1e-7)


def test_each_side_has_its_gamma():
    outputs, prompts = pairs(60)
    open_kernels = {"kernel": GaussianKernel(), "prompt_kernel": GaussianKernel(), "rcond": 1e-3}
    kept = fed(ScendiScore(**open_kernels), outputs, prompts, 11)
    streamed = fed(ScendiScore(**open_kernels, num_features=4), outputs, prompts, 11)
    kept.compute()
    for metric, rows in ((kept, slice(None)), (streamed, slice(0, 11))):
        assert metric.kernel == GaussianKernel().resolved(outputs[rows])
        assert metric.prompt_kernel == GaussianKernel().resolved(prompts[rows])


def test_correct_gives_the_residual_of_a_regression():
    outputs, prompts = pairs(60)
    new_outputs, new_prompts = pairs(9, seed=5)
    metric = fed(ScendiScore(), outputs, prompts, 11)
    found = metric.correct(new_outputs, new_prompts)
    fit = np.linalg.lstsq(unit(prompts), unit(outputs), rcond=None)[0]
    np.testing.assert_allclose(found, unit(new_outputs) - unit(new_prompts) @ fit, atol=1e-9)
    assert metric.compute() == metric.compute()  # asking has left the metric as it was


def test_corrected_outputs_vary_as_much_as_scendi_says():
    """Λ_I is the covariance of the corrected features."""
    outputs, prompts = pairs(60)
    metric = fed(ScendiScore(), outputs, prompts, 11)
    rest = metric.correct(outputs, prompts).numpy()
    values = twin.spectrum(rest.T @ rest / 60)
    found = floats(metric.compute())
    assert found["scendi"] == pytest.approx(np.exp((values * np.log(values.sum() / values)).sum()))
    assert found["prompt_share"] == pytest.approx(1 - values.sum())


def test_modes_rank_the_samples_seen_and_new_ones():
    outputs, prompts = pairs(60)
    metric = fed(ScendiScore(), outputs, prompts, 11)
    modes = metric.modes(2)
    scores = metric.mode_scores(outputs, prompts, modes)
    np.testing.assert_allclose(scores, metric.correct(outputs, prompts) @ modes.vectors, atol=1e-10)
    torch.testing.assert_close(scores.square().mean(0), modes.eigenvalues)
    assert (scores.sum(0) > 0).all()
    torch.testing.assert_close(metric.mode_scores(outputs[:5], prompts[:5], modes), scores[:5])


def test_modes_of_random_features():
    outputs, prompts = pairs(200)
    metric = fed(ScendiScore(**FORMS["fourier"]), outputs, prompts, 50)
    modes = metric.modes(3)
    scores = metric.mode_scores(outputs, prompts, modes)
    torch.testing.assert_close(scores.square().mean(0), modes.eigenvalues, rtol=1e-5, atol=0)
    assert metric.correct(outputs, prompts).shape == (200, 8)


def test_without_features_there_are_scores_alone():
    outputs, prompts = pairs(30)
    metric = fed(ScendiScore(LaplacianKernel(0.3), rcond=1e-3), outputs, prompts)
    for call in (lambda: metric.modes(2), lambda: metric.correct(outputs, prompts)):
        with pytest.raises(ValueError, match="Set `num_features`, or use the cosine kernel"):
            call()
    assert floats(metric.compute()) == pytest.approx(
        floats(scendi_score(outputs, prompts, kernel=LaplacianKernel(0.3), rcond=1e-3))
    )


def test_rank_deficient_prompts_give_finite_values():
    outputs, prompts = pairs(40, e=2)
    expected = floats(fed(ScendiScore(), outputs, prompts, 7).compute())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twice = floats(fed(ScendiScore(), outputs, torch.cat([prompts, prompts], 1), 7).compute())
        alike = floats(fed(ScendiScore(), outputs, torch.ones(40, 3), 7).compute())
    assert twice == pytest.approx(expected)
    assert all(math.isfinite(value) for value in alike.values())
    assert alike["scendi_prompt"] == pytest.approx(1)


def test_prompts_of_full_rank_are_warned_of():
    metric = fed(ScendiScore(), draw(5, 4), draw(5, 6, seed=1))
    with pytest.warns(UserWarning, match="rank 5 for 5 samples.*`scendi` is near 1 whatever the model does"):
        assert floats(metric.compute())["prompt_share"] == pytest.approx(1)


X, T = pairs(6)


@pytest.mark.parametrize("side", ["outputs", "prompts"])
def test_zero_vectors_are_refused_under_the_cosine_kernel(side):
    metric = ScendiScore()
    with pytest.raises(ValueError, match=f"`{side}` without zero vectors for the cosine kernel, but 6 of 6 rows"):
        metric.update(*(0 * x if name == side else x for name, x in (("outputs", X), ("prompts", T))))
    assert metric.count == 0


def test_more_modes_than_features_are_refused():
    with pytest.raises(ValueError, match="`num_modes` to be at most 4, the features of the kernel, but got 5"):
        fed(ScendiScore(), *pairs(20)).modes(5)
