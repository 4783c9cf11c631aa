# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import torch

from genmonitor.functional.w1kp.subsets import ReusabilityCurve
from genmonitor.plotting.diversity import least_varied, mode_samples, reusability_figure


def legend_texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def curve(ax, color, style="-"):
    (found,) = (x for x in ax.lines if x.get_color() == color and x.get_linestyle() == style and len(x.get_xdata()) > 2)
    return found


def test_each_mode_is_a_row_of_its_samples_with_their_prompts():
    images = torch.linspace(-1, 1, 12).view(2, 6, 1, 1, 1).expand(2, 6, 1, 8, 8)
    prompts = [[f"a{k}" for k in range(6)], [f"b{k}" for k in range(6)]]
    figure = mode_samples([0.25, 0.5], images, prompts, (-1, 1))
    shown = [float(ax.images[0].get_array()[0, 0, 0]) for ax in figure.axes]
    assert shown == pytest.approx(np.linspace(0, 1, 12), abs=1e-6)
    texts = [text.get_text() for text in figure.texts]
    assert [text for text in texts if text[0] in "ab" and len(text) == 2] == prompts[0] + prompts[1]
    assert "mode 1\n25 %" in texts
    assert "mode 2\n50 %" in texts
    assert texts.index("one end") < texts.index("the other end")
    lefts = [ax.get_position().x0 for ax in figure.axes[:6]]
    gaps = np.diff(lefts)
    assert gaps[2] > 1.2 * gaps[0] == pytest.approx(1.2 * gaps[1])


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("$5 for_a^cat", "$5 for_a^cat"),
        ("two\n lines\t", "two lines"),
        ("\u732b a cat", "? a cat"),
        ("a prompt of many words", "a prompt of many…"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_prompts_are_shown_as_they_are_in_one_short_line(prompt, shown):
    figure = mode_samples([1.0], torch.zeros(1, 2, 3, 8, 8), [[prompt, ""]])
    figure.canvas.draw()
    assert shown in {text.get_text() for text in figure.texts}


@pytest.mark.parametrize("size", [(1, 8, 8), (3, 40, 20), (3, 300, 300)])
def test_any_image_size_is_drawn_inside_the_figure(size):
    figure = mode_samples([0.5, 0.1], torch.rand(2, 4, *size), [["prompt"] * 4] * 2)
    for ax in figure.axes:
        box = ax.get_position()
        assert box.x0 > 0
        assert box.y0 > 0
        assert box.x1 < 1
        assert box.y1 < 1


def test_the_least_varied_prompts_are_rows_of_their_images():
    rows = [("a cat", 0.9, "high similarity", torch.zeros(2, 1, 8, 8)), ("x" * 300, 0.3, "low", torch.ones(3, 1, 8, 8))]
    figure = least_varied(rows)
    figure.canvas.draw()
    texts = [text.get_text() for text in figure.texts]
    assert texts[0] == "The least varied prompts"
    assert texts[2:4] == ["closest pair", "others"]
    assert texts[4] == "a cat\n0.90  high similarity"
    assert texts[5].endswith("…\n0.30  low")
    assert [float(ax.images[0].get_array()[0, 0, 0]) for ax in figure.axes] == [0, 0, 1, 1, 1]
    size = figure.get_size_inches() * figure.dpi
    for box in [text.get_window_extent() for text in figure.texts] + [ax.get_tightbbox() for ax in figure.axes]:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= size[0]
        assert box.y1 <= size[1]


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
