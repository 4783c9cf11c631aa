# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from genmonitor.functional.w1kp import ReusabilityCurve
from genmonitor.plotting.w1kp import reusability_figure


def rising(n: int, half: float = 0.05, prompts: int = 9) -> ReusabilityCurve:
    mean = np.linspace(0.2, 0.95, n)
    low, high = (tuple((mean + by).clip(0, 1).tolist()) for by in (-half, half))
    return ReusabilityCurve(tuple(mean.tolist()), low, high, prompts, 0, 0.85)


def texts(figure):
    return [part.get_text() for part in figure.findobj(lambda part: hasattr(part, "get_text"))]


def test_the_title_says_how_many_images_a_prompt_is_good_for():
    figure = reusability_figure({"": rising(16)})
    assert rising(16).interval == (13, 15)
    assert figure.texts[0].get_text() == "Images that one prompt is good for: 14 (13 to 15)"
    assert {"9 prompts", "high similarity: 0.85"} <= set(texts(figure))


def test_curve_band_and_crossing_are_drawn():
    curve = rising(16)
    (ax,) = reusability_figure({"": curve}).axes
    line, crossing, cutoff = ax.lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == (list(range(2, 18)), list(curve.mean))
    assert set(crossing.get_xdata()) == {curve.reusability}
    assert set(cutoff.get_ydata()) == {0.85}
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(min(curve.low))
    assert band[:, 1].max() == pytest.approx(max(curve.high))


@pytest.mark.parametrize("half", [0.0, 0.02])
def test_a_curve_that_never_gets_there_is_good_for_that_many_or_more(half):
    curve = ReusabilityCurve((0.1, 0.3), (0.1 - half, 0.3 - half), (0.1 + half, 0.3 + half), 4, 0, 0.85)
    assert reusability_figure({"": curve}).texts[0].get_text() == "Images that one prompt is good for: 3 or more"


def test_several_curves_are_told_apart():
    figure = reusability_figure({"one": rising(60), "other": rising(200, prompts=3)})
    (ax,) = figure.axes
    assert [text.get_text().split(":")[0] for text in ax.get_legend().get_texts()[:2]] == ["one", "other"]
    assert len({line.get_color() for line in ax.lines if line.get_linestyle() == "-"}) == 2
    assert ax.get_xscale() == "log"
    assert figure.texts[0].get_text() == "Images that one prompt is good for"


@pytest.mark.parametrize("n", [1, 2, 40])
def test_nothing_lies_outside_the_figure(n):
    figure = reusability_figure({"": rising(n), "x": rising(n)})
    figure.canvas.draw()
    size = figure.get_size_inches() * figure.dpi
    boxes = [text.get_window_extent() for text in figure.texts] + [ax.get_tightbbox() for ax in figure.axes]
    for box in boxes:
        assert 0 <= box.x0 <= box.x1 <= size[0]
        assert 0 <= box.y0 <= box.y1 <= size[1]
