# SPDX-License-Identifier: Apache-2.0

import pytest
import torch
from _helpers.joint_spectra import KERNELS, random_sides
from _helpers.processes import in_two_processes
from _helpers.prompt_ranks import FEATURES, FORMS, PROMPTS, everything, feed
from torch.testing import assert_close

from genmonitor import CosineKernel, GaussianKernel, PromptSplit, W1KPScore
from genmonitor.functional import calibrate, joint_spectrum, prompt_split, w1kp_by_prompt

forms = pytest.mark.parametrize("form", FORMS)
COSINES = {"output_kernel": CosineKernel(), "prompt_kernel": CosineKernel()}


def made(form: str, **kwargs) -> PromptSplit:
    return PromptSplit(**FORMS[form], **kwargs)


def same(found, expected, error=1e-9):
    assert_close(found, expected, rtol=0, atol=error)


@pytest.mark.parametrize("kernels", [KERNELS, COSINES])
@pytest.mark.parametrize("num_features", [None, 12])
def test_it_is_the_function(kernels, num_features):
    arguments = {**kernels, "num_features": num_features, "eta": 0.5, "num_modes": 6}
    found = feed(PromptSplit(**arguments), 7).compute()
    expected = prompt_split(*random_sides(), **arguments)
    same(found["eigenvalues"], expected.eigenvalues)
    assert float(found["total"]) == pytest.approx(float(expected.total), abs=1e-5)


def test_widths_come_from_the_reference_or_from_the_first_batch():
    x, t, y, u = random_sides()
    kept, streaming = made("exact"), made("streaming")
    assert kept.output_gamma.isnan()
    for metric in (kept, streaming):
        metric.update(x, t, reference=False)
        metric.update(y, u, reference=True)
    kept.compute()
    for metric, outputs, prompts in ((kept, y, u), (streaming, x, t)):
        assert metric.output_kernel == GaussianKernel().resolved(outputs)
        assert metric.prompt_kernel == GaussianKernel().resolved(prompts)
    again = kept.output_gamma.clone()
    kept.reset()
    kept.update(3 * x, t, reference=False)
    kept.update(3 * y, u, reference=True)
    kept.compute()
    assert torch.equal(kept.output_gamma, again)


@forms
def test_modes_score_samples(form):
    x, t, y, u = random_sides()
    metric = feed(made(form), 7)
    modes = metric.modes()
    same(modes.eigenvalues, metric.compute()["eigenvalues"])
    scores, reference_scores = modes.score(x, t), modes.score(y, u)
    same((scores**2).mean(0) - (reference_scores**2).mean(0), modes.eigenvalues)
    assert (torch.where(modes.eigenvalues > 0, scores.mean(0), reference_scores.mean(0)) > -1e-12).all()
    if form == "exact":
        same(modes.scores, scores)
        same(modes.reference_scores, reference_scores)
    else:
        assert modes.scores.shape == modes.reference_scores.shape == (0, 20)
        with pytest.raises(ValueError, match=r"modes.score\(outputs, prompts\)"):
            modes.parts(["a"] * 30, ["b"] * 20)


def test_a_large_streamed_state_goes_by_krylov(monkeypatch):
    dense = feed(made("streaming", num_modes=6), 7).compute()
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)
    found = feed(made("streaming", num_modes=6), 7).compute()
    same(found["eigenvalues"], dense["eigenvalues"], 1e-8)
    same(found["total"], dense["total"])


@forms
def test_widths_are_saved_without_asking(form):
    metric = feed(made(form), 9)
    metric.compute()
    resumed = made(form)
    resumed.load_state_dict(metric.state_dict())
    assert resumed.output_kernel == metric.output_kernel
    x, t, y, u = (2 * side for side in random_sides())
    values = []
    for one in (metric, resumed):
        one.reset()
        one.update(x, t, reference=False)
        one.update(y, u, reference=True)
        values.append(one.compute())
    same(*values, 0)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return in_two_processes(everything, tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
@forms
@pytest.mark.parametrize("share", ["uneven", "one side each"])
def test_two_processes_say_what_one_says(ranks, share, form):
    first = ranks[0][share, form, "gammas"]
    kernels = {"output_kernel": GaussianKernel(first[0]), "prompt_kernel": GaussianKernel(first[1])}
    expected = feed(made(form, **kernels), 30).compute()
    for rank in ranks:
        assert rank[share, form, "gammas"] == first
        same(rank[share, form]["eigenvalues"], expected["eigenvalues"], 1e-9)
        assert float(rank[share, form]["total"]) == pytest.approx(float(expected["total"]), abs=1e-5)
        eigenvalues, shape = rank[share, form, "modes"]
        same(eigenvalues, expected["eigenvalues"], 1e-9)
        assert shape == (30 if form == "exact" else 0, 20)
    if form == "exact":
        assert first[0] == GaussianKernel().resolved(random_sides()[2]).gamma


@pytest.mark.slow
def test_an_error_of_rank_zero_is_everyones(ranks):
    assert ranks[0]["refused"] == ranks[1]["refused"]
    assert "`output_kernel`: Expected samples that differ" in ranks[0]["refused"]


@pytest.mark.slow
def test_w1kp_of_two_processes(ranks):
    calibration = calibrate(FEATURES)
    metric = W1KPScore(calibration, k=3)
    metric.update(FEATURES, PROMPTS)
    rows = [(row.prompt, row.outputs, row.w1kp) for row in w1kp_by_prompt(FEATURES, PROMPTS, calibration=calibration)]
    for rank in ranks:
        same(rank["w1kp"]["w1kp"], metric.compute()["w1kp"])
        assert rank["w1kp rows"] == [(name, count, pytest.approx(value)) for name, count, value in rows]


@pytest.mark.parametrize("num_features", [None, 64])
def test_without_prompts_it_is_ken(num_features):
    x, _, y, _ = random_sides()
    metric = PromptSplit(num_features=num_features, num_modes=2)
    for part in x.split(11):
        metric.update(part, reference=False)
    for part in y.split(13):
        metric.update(part, reference=True)
    found = metric.compute()
    if num_features is None:
        expected = prompt_split(x, None, y, None, num_modes=2)
        same(found["eigenvalues"], expected.eigenvalues)
        same(found["total"], expected.total)
    modes = metric.modes()
    scores = modes.score(x, None)
    assert scores.shape == (len(x), 4)
    if num_features is None:
        same(scores, modes.scores)
