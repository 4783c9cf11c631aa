# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from genmonitor.plotting.metrics import beside_cms

OTHERS = {"fid": [8.0, 3.0, math.nan], "kid": [1.0, 0.5, 0.25]}
DEVIATIONS = {"kid": [0.1, 0.1, 0.05]}


def test_each_metric_has_a_panel_with_its_deviation_as_band():
    figure = beside_cms([1, 2, 3], [0.9, 0.99, 0.999], (0.998, 0.999, 0.9995), OTHERS, DEVIATIONS)
    cms, fid, kid = figure.axes
    assert cms.get_title(loc="left") == "CMS, latest 0.9990"
    assert fid.get_title(loc="left") == "fid, latest 3"
    assert cms.patches[0].get_extents().height > 0  # the baseline
    band = kid.collections[-1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (pytest.approx(0.2), pytest.approx(1.1))
    assert fid.lines[0].get_ydata()[:2].tolist() == [8.0, 3.0]


def test_baselines_of_other_metrics_are_drawn_where_they_are_known():
    figure = beside_cms([1, 2, 3], [0.9, 0.99, 0.999], None, OTHERS, bands={"fid": (0.5, 0.6, 0.75)})
    cms, fid, kid = figure.axes
    assert [len(ax.patches) for ax in (cms, fid, kid)] == [0, 1, 0]
    (bar,) = fid.patches
    assert (bar.get_y(), bar.get_height()) == (0.5, pytest.approx(0.25))
    assert "gray bars: what real images get" in figure.texts[1].get_text()


@pytest.mark.parametrize(
    ("values", "scale"),
    [([4000.0, 30.0], "log"), ([8.0, 3.0], "linear"), ([9.0, -0.1], "linear"), ([math.nan], "linear")],
)
def test_falling_by_orders_of_magnitude_gets_a_log_scale(values, scale):
    epochs = list(range(len(values)))
    figure = beside_cms(epochs, [0.9] * len(values), None, {"fid": values})
    assert figure.axes[1].get_yscale() == scale
    figure.canvas.draw()


def test_panels_do_not_overlap():
    figure = beside_cms([1, 2], [0.9, 0.99], None, {name: [1.0, 2.0] for name in "abcdef"})
    boxes = [ax.get_position() for ax in figure.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    assert all(0 < box.y0 < box.y1 < 0.95 for box in boxes)
