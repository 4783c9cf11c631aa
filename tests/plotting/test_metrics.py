# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from genmonitor import CosineMeanSimilarity, PixelPartition
from genmonitor.functional.w1kp import ReusabilityCurve
from genmonitor.plotting.metrics import cms_figure, reusability_figure
from genmonitor.plotting.style import INK, cluster_color

PARTITION = PixelPartition(torch.tensor([[1, 1, 2], [1, 1, 0]]))
VALUE = {"image": 0.9, "product": 0.9, "cluster_1": 0.99, "cluster_2": 0.91, "constant": 1.0, "share_1": 0.1}
BASELINE = {"image": (0.97, 0.98, 0.99), "cluster_1": (0.98, 0.99, 0.995)}


def marks(ax):
    """Each region's disc: place, value and color."""
    return {
        float(line.get_xdata()[0]): (float(line.get_ydata()[0]), line.get_color())
        for line in ax.lines
        if line.get_marker() == "o"
    }


def test_one_value_is_a_column_each_for_the_image_and_every_region():
    ax, regions = cms_figure([VALUE], PARTITION, {}).axes
    assert marks(ax) == {
        0: (0.9, INK),
        1: (0.99, cluster_color(1)),
        2: (0.91, cluster_color(2)),
        3: (1.0, cluster_color(0)),
    }
    said = [tick.get_text() for tick in ax.get_xticklabels()]
    assert said == ["image\n0.9000", "cluster 1\n0.9900", "cluster 2\n0.9100", "constant\n1"]
    assert regions.images[0].get_array().shape == (2, 3, 3)


def test_bands_stand_behind_the_values_that_have_one():
    ax = cms_figure([VALUE], PARTITION, BASELINE).axes[0]
    bars = {
        round(bar.get_x() + bar.get_width() / 2): (bar.get_y(), bar.get_y() + bar.get_height()) for bar in ax.patches
    }
    assert bars == {0: pytest.approx((0.97, 0.99)), 1: pytest.approx((0.98, 0.995))}


def test_several_values_are_curves_named_in_a_legend():
    better = VALUE | {"image": 0.985, "cluster_2": 0.95}
    ax = cms_figure([VALUE, better], PARTITION, BASELINE).axes[0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["image", "cluster 1", "cluster 2", "constant"]
    assert ax.lines[0].get_ydata().tolist() == [0.9, 0.985]
    first, last = ax.collections[0].get_facecolors()
    assert first[:3].tolist() == [1, 1, 1]  # hollow: below the baseline
    assert last[:3].tolist() != [1, 1, 1]


def test_the_metric_draws_it():
    metric, real = CosineMeanSimilarity(PARTITION), torch.rand(20, 1, 2, 3)
    metric.update(real, real=True)
    metric.update(real * 0.5, real=False)
    figure, ax = metric.plot(baseline=BASELINE)
    values = metric.compute()
    names = ("image", *PARTITION.regions())
    assert [value for value, _ in marks(ax).values()] == pytest.approx(
        [float(values[name]) for name in names], abs=1e-6
    )
    assert metric.plot([values, values])[1].get_legend() is not None
    assert len(figure.axes) == 2


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
