# SPDX-License-Identifier: Apache-2.0
import sys

import curves
import numpy as np
import pytest
from _helpers.runs import add_diversity, make_run
from curves import cluster_curves, curves_of
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from genmonitor.plotting.style import cluster_color
from genmonitor.report.run import read_run

ROWS = ["03332555", "13311455", "13111445", "11111441", "01111440", "11111221", "11111222", "13332222"]
LABELS = np.array([[int(digit) for digit in row] for row in ROWS])
EPOCHS = [1, 2, 3]
CURVES = {k: [0.9, 0.99, 1 - 0.001 * k] for k in range(1, 6)} | {0: [1.0, 1.0, 1.0]}
BASELINE = dict.fromkeys(range(1, 6), (0.9965, 0.9975, 0.9985))


def texts(figure):
    """Return everything written outside the axes, and on them."""
    on_axes = [text for ax in figure.axes for text in ax.texts]
    return [text.get_text() for text in [*figure.texts, *on_axes]]


def test_command_draws_the_curves_of_a_run(tmp_path, monkeypatch, capsys):
    make_run(tmp_path, evaluations=3)
    monkeypatch.setattr(sys, "argv", ["curves.py", str(tmp_path), "--out", str(tmp_path / "curves.png")])
    curves.main()
    assert capsys.readouterr().out == f"{tmp_path / 'curves.png'}\n"
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_every_region_has_its_curve(tmp_path):
    (run,) = read_run(make_run(tmp_path, evaluations=3)).monitors
    drawn = {line.get_label(): list(line.get_ydata()) for line in curves_of(run).axes[0].lines}
    assert drawn == {"cluster 1": [0.9] * 3, "cluster 2": [0.5, 0.75, pytest.approx(5 / 6)], "constant": [1.0] * 3}


def test_run_without_regions_is_refused(tmp_path):
    add_diversity(tmp_path, ["a cat"])
    (run,) = read_run(tmp_path).monitors
    with pytest.raises(ValueError, match="diversity has none"):
        curves_of(run)


def test_curves_are_read_in_cms_with_equal_steps_towards_one():
    figure = cluster_curves(EPOCHS, CURVES, BASELINE, LABELS)
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "CMS (higher is better)")
    line = next(line for line in ax.lines if line.get_label() == "cluster 2")
    assert list(line.get_ydata()) == CURVES[2]
    ticks = [label.get_text() for label in ax.get_yticklabels()]
    assert {"0.9", "0.99", "0.999", "1"} <= set(ticks)
    heights = ax.transData.transform([(1, cms) for cms in (0.9, 0.99, 0.999)])[:, 1]
    assert heights[2] - heights[1] == pytest.approx(heights[1] - heights[0])
    assert heights[0] < heights[1]


def test_note_of_the_curves_is_the_finding():
    figure = cluster_curves(EPOCHS, CURVES, BASELINE, LABELS, "cluster_2 differs from real images")
    assert figure.texts[1].get_text() == "cluster_2 differs from real images"
    assert figure.texts[0].get_text() == "CMS per cluster, epoch 3"


def test_points_are_filled_where_the_baseline_is_reached():
    ax = cluster_curves(EPOCHS, CURVES, BASELINE, LABELS).axes[0]
    fill = {c.get_edgecolor()[0].tobytes(): [to_hex(f) for f in c.get_facecolor()] for c in ax.collections}
    three = to_hex(cluster_color(3)).lower()
    assert ["#ffffff", "#ffffff", three] in fill.values()
    assert ["#ffffff"] * 3 in fill.values()


def test_the_constant_region_is_drawn_like_any_other():
    curves = {1: [0.9, 0.99], 0: [0.9999, 0.99999]}
    figure = cluster_curves([1, 2], curves, {0: (0.99995, 0.99997, 1.0)}, LABELS)
    ax, strip, _ = figure.axes
    points = ax.collections[1]
    assert [to_hex(color) for color in points.get_facecolor()] == ["#ffffff", cluster_color(0).lower()]
    top = ax.transData.transform([(1, cms) for cms in (0.9999, 0.99999, ax.get_ylim()[1])])[:, 1]
    assert (np.diff(top) > 10).all()  # each below the axis' end, not at it
    assert len(strip.patches) == 1


def test_exactly_one_reaches_a_baseline_of_exactly_one():
    ax = cluster_curves([1, 2], {0: [1 - 1e-8, 0.9]}, {0: (1.0, 1.0, 1.0)}, LABELS).axes[0]
    assert [to_hex(color) for color in ax.collections[0].get_facecolor()] == [cluster_color(0).lower(), "#ffffff"]


def test_bars_are_the_baselines_bands():
    figure = cluster_curves(EPOCHS, CURVES, BASELINE, LABELS)
    strip = figure.axes[1]
    bars = [patch for patch in strip.patches if isinstance(patch, Rectangle)]
    assert len(bars) == 5
    for label, bar in enumerate(bars, 1):
        assert to_hex(bar.get_facecolor()).lower() == cluster_color(label).lower()
        assert (bar.get_y(), bar.get_y() + bar.get_height()) == pytest.approx((0.9965, 0.9985))
    (key,) = figure.legends
    assert [text.get_text() for text in key.get_texts()] == ["latest", "baseline: real images", "constant pixels"]
    figure.draw_without_rendering()
    assert not any(ax.get_tightbbox().overlaps(key.get_window_extent()) for ax in figure.axes)


def test_nan_leaves_a_gap_and_the_latest_known_value_counts():
    curves = {1: [0.5, float("nan"), 0.9, float("nan")], 2: [float("nan")] * 4}
    figure = cluster_curves([1, 2, 3, 4], curves, {}, [[1, 2]])
    figure.canvas.draw()
    one, two = figure.axes[0].lines
    assert np.isnan(one.get_ydata()).tolist() == [False, True, False, True]
    assert np.isnan(two.get_ydata()).all()
    assert [(text.get_text(), text.get_position()[1]) for text in figure.axes[1].texts] == [("1", 0.9)]


@pytest.mark.parametrize("value", [1.0, 1 + 1e-7, 0.3, -0.2, float("nan")])
def test_one_check_of_any_value_is_drawn(value):
    curves = {1: [value], 0: [1.0]}
    figure = cluster_curves([0], curves, {1: (1.0, 1.0, 1.0)}, [[0, 1]])
    figure.canvas.draw()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0"]
    low, high = figure.axes[0].get_ylim()
    assert low < high <= 1


def test_without_a_baseline_nothing_is_said_about_one():
    figure = cluster_curves(EPOCHS, CURVES, {}, LABELS)
    assert not any("perfect" in text or "baseline" in text for text in texts(figure))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["latest", "constant pixels"]
    assert not figure.axes[1].patches
