# SPDX-License-Identifier: Apache-2.0
"""Two processes are in test_promptsplit.py: starting them takes seconds."""

import copy
import pickle

import pytest
import torch
from matplotlib import pyplot
from torch.testing import assert_close

from genmonitor import W1KPScore
from genmonitor.functional import calibrate, reusability_curve, w1kp_by_prompt, w1kp_score

FEATURES, PROMPTS = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) ** 2 % 7
CALIBRATION = calibrate(FEATURES)


def fed(batch: int = 40, **kwargs) -> W1KPScore:
    metric = W1KPScore(CALIBRATION, **kwargs)
    for start in range(0, 40, batch):
        metric.update(FEATURES[start : start + batch], PROMPTS[start : start + batch])
    return metric


def same(found, expected):
    assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("batch", [1, 7, 40])
@pytest.mark.parametrize("k", [None, 4])
def test_it_is_the_function(batch, k):
    same(fed(batch, k=k).compute(), w1kp_score(FEATURES, PROMPTS, calibration=CALIBRATION, k=k))


def test_the_table_is_the_functions():
    names = [f"prompt {prompt}" for prompt in range(7)]
    expected = w1kp_by_prompt(FEATURES, PROMPTS, calibration=CALIBRATION, k=3, names=names)
    assert fed(9, k=3).per_prompt(names) == expected
    assert {row.prompt for row in fed().per_prompt()} == {0, 1, 2, 4}


def test_copies_go_on_alike():
    metric = fed(k=3)
    copies = [metric.clone(), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))]
    for one in [metric, *copies]:
        one.update(FEATURES[:9] ** 2, PROMPTS[:9])
    for one in copies:
        same(one.compute(), metric.compute())


def test_a_saved_state_is_taken_up(tmp_path):
    metric = fed()
    metric.persistent(True)
    torch.save(metric.state_dict(), tmp_path / "state.pt")
    resumed = W1KPScore(CALIBRATION)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for one in (metric, resumed):
        one.update(FEATURES[:9] ** 2, PROMPTS[:9])
    same(resumed.compute(), metric.compute())


def test_reset_starts_anew():
    metric = fed()
    metric.reset()
    metric.update(FEATURES[:20], PROMPTS[:20])
    same(metric.compute(), w1kp_score(FEATURES[:20], PROMPTS[:20], calibration=CALIBRATION))


def test_forward_adds_its_batch_and_has_no_value():
    metric = W1KPScore(CALIBRATION)
    assert metric(FEATURES[:1], PROMPTS[:1]) is None  # alone it could have none
    metric(FEATURES[1:], PROMPTS[1:])
    same(metric.compute(), fed().compute())


def test_the_graph_of_a_batch_is_not_kept():
    metric = W1KPScore(CALIBRATION)
    metric.update(FEATURES.clone().requires_grad_(), PROMPTS)
    assert not metric.compute()["w1kp"].requires_grad


def test_plot_draws_the_reusability_curve():
    metric = fed()
    curve = metric.reusability_curve()
    figure, ax = metric.plot()
    assert list(ax.lines[0].get_ydata()) == list(curve.mean)
    assert figure.texts[0].get_text().startswith("Images that one prompt is good for: ")
    _, ax = metric.plot({"one": curve, "other": curve})
    assert [text.get_text().split(":")[0] for text in ax.get_legend().get_texts()[:2]] == ["one", "other"]


def test_values_are_plotted_as_torchmetrics_does():
    metric = fed()
    figures = [metric.plot(metric.compute())[0], metric.plot([metric.compute()] * 3)[0]]
    _, ax = pyplot.subplots()
    figures.append(metric.plot(ax=ax)[0])
    assert all(figure is None or "good for" not in str(figure.texts) for figure in figures)
    pyplot.close("all")


def test_the_reusability_curve_is_the_functions():
    expected = reusability_curve(FEATURES, PROMPTS, calibration=CALIBRATION, k=4, cutoff=0.7)
    assert fed(9).reusability_curve(k=4, cutoff=0.7) == expected


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")
def test_refusals():
    with pytest.raises(ValueError, match=r"got None.*calibrate\(features, prompt_index\)"):
        W1KPScore(None)
    with pytest.raises(ValueError, match="`k` to be a whole number >= 2"):
        W1KPScore(CALIBRATION, k=1)
    metric = W1KPScore(CALIBRATION)
    with pytest.raises(ValueError, match=r"at least 2 outputs before `compute`, but got 0\. Call `update"):
        metric.compute()
    with pytest.raises(ValueError, match="embedding that the calibration is of, with 3 values"):
        metric.update(FEATURES[:, :2], PROMPTS)
    with pytest.raises(TypeError, match="`prompt_index` as whole numbers"):
        metric.update(FEATURES, PROMPTS.float())
    with pytest.raises(TypeError, match=r"`prompt_index` to be a torch\.Tensor, but got None"):
        metric.update(FEATURES, None)
    with pytest.raises(ValueError, match="as many samples"):
        metric.update(FEATURES, PROMPTS[1:])
    metric.update(FEATURES[:5], torch.arange(5))
    with pytest.raises(ValueError, match="a prompt with at least 2 outputs, but got none"):
        metric.compute()
