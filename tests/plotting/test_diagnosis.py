# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection

from genmonitor.plotting.diagnosis import diagnosis_figure, map_pixels
from genmonitor.plotting.style import to_tiles

CORNER = np.zeros((8, 8), dtype=bool)
CORNER[4:, 4:] = True
SIZES = np.where(CORNER, np.arange(64.0).reshape(8, 8), 2.0)
P = np.where(CORNER, 0.005, 0.4)
IMAGES = torch.rand(7, 3, 8, 8, generator=torch.Generator().manual_seed(0))
ROWS = {"real": IMAGES, "real, with blurred": IMAGES / 2, "generated": 1 - IMAGES}


def drawn(sizes=SIZES, p_values=P, **changes):
    """Return the figure of a diagnosis with a fault in the corner, and its axes: map, scale, rows, shares."""
    arguments = {
        "average": IMAGES.mean(0),
        "drawn": (sizes, p_values),
        "areas": [CORNER],
        "examples": ROWS,
        "shares": {"blurred, σ 0.8 px": 0.6, "noise 0.05": 0.1},
        "title": "Lower right: blurred.",
        "note": "Usual cause: one.",
    }
    return diagnosis_figure(**(arguments | changes))


def rows_of(figure):
    return [ax for ax in figure.axes if ax.get_title(loc="left")]


def shares_of(figure):
    """Return the parts of the bar, each with its width, and what the legend says."""
    ax = figure.axes[-1]
    return [bar.get_width() for bar in ax.patches], [text.get_text() for text in ax.get_legend().get_texts()]


def outlines(ax):
    return [x for x in ax.collections if isinstance(x, LineCollection)]


def is_gray(pixels):
    return np.ptp(pixels, axis=2) < 1e-6


def test_the_map_is_clear_where_it_may_be_chance():
    np.testing.assert_array_equal(is_gray(map_pixels(IMAGES.mean(0), SIZES, P)), ~CORNER)


def test_a_size_that_is_not_above_0_is_left_clear():
    sizes = SIZES.copy()
    sizes[5, 5] = -3
    assert is_gray(map_pixels(IMAGES.mean(0), sizes, P))[5, 5]


def test_images_that_are_not_aligned_have_no_map():
    figure = drawn(drawn=None, areas=[])
    assert [ax.get_title(loc="left") for ax in figure.axes] == [*ROWS, ""]
    assert figure.get_size_inches()[0] < drawn().get_size_inches()[0]


def test_where_nothing_differs_it_says_so():
    ax = drawn(p_values=np.ones((8, 8))).axes[0]
    assert len(ax.images) == 1
    assert ax.get_xlabel() == "no difference beyond chance"


@pytest.mark.parametrize("level", [0.0, 0.5])
def test_below_the_map_is_the_average_in_gray(level):
    average = torch.full((3, 8, 8), level)
    np.testing.assert_allclose(map_pixels(average, SIZES, np.ones((8, 8))), 0.35)  # constant, and not divided by 0


def test_every_row_has_its_name_and_at_most_six_images():
    rows = rows_of(drawn())
    assert [ax.get_title(loc="left") for ax in rows] == list(ROWS)
    for ax, images in zip(rows, ROWS.values(), strict=True):
        tiles = to_tiles(images[:6].numpy(), (0, 1))
        canvas, size = np.asarray(ax.images[0].get_array()), tiles.shape[1]
        np.testing.assert_array_equal(canvas[:, :size], tiles[0])
        np.testing.assert_array_equal(canvas[:, -size:], tiles[5])


def test_the_first_area_is_outlined_on_each_image():
    figure = drawn(areas=[CORNER, ~CORNER])
    assert [len(outlines(ax)) for ax in rows_of(figure)] == [2] * 3  # a line and its halo
    (size,) = {ax.images[0].get_array().shape[0] for ax in rows_of(figure)}
    sides = np.array(outlines(rows_of(figure)[0])[1].get_segments()).reshape(6, -1, 2)  # of each image
    step = sides[1, :, 0].min() - sides[0, :, 0].min()
    assert step > size
    for number, corners in enumerate(sides):
        left = number * step
        assert corners[:, 0].min() - left == pytest.approx(size / 2 - 0.5)
        assert corners[:, 0].max() - left == pytest.approx(size - 0.5)
        assert corners[:, 1].min() == pytest.approx(size / 2 - 0.5)
        assert corners[:, 1].max() == pytest.approx(size - 0.5)


@pytest.mark.parametrize("areas", [[], [np.ones((8, 8), dtype=bool)]], ids=["none", "whole"])
def test_images_are_not_outlined_where_that_would_say_nothing(areas):
    assert not any(outlines(ax) for ax in rows_of(drawn(areas=areas)))


def test_the_shares_fill_the_bar():
    widths, said = shares_of(drawn())
    np.testing.assert_allclose(widths, [0.6, 0.1, 0.3])
    assert said == ["blurred, σ 0.8 px: 60 %", "noise 0.05: 10 %", "not explained: 30 %"]


def test_more_than_all_is_all():
    widths, said = shares_of(drawn(shares={"blurred": 1.2, "noise": 0.3}))
    np.testing.assert_allclose(widths, [0.8, 0.2])
    assert said == ["blurred: 80 %", "noise: 20 %"]


def test_less_than_nothing_is_nothing():
    widths, said = shares_of(drawn(shares={"blurred": -0.2, "noise": -0.1}))
    np.testing.assert_allclose(widths, [1])
    assert said == ["not explained: 100 %"]


def test_without_examples_there_is_the_map_alone():
    figure = drawn(examples={})
    assert not rows_of(figure)
    assert len(figure.axes) == 2


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_number_of_channels_is_drawn(channels):
    images = torch.rand(2, channels, 8, 8)
    figure = drawn(average=images[0], examples={"real": images})
    figure.canvas.draw()
    assert np.asarray(rows_of(figure)[0].images[0].get_array()).shape[2] == 3


def test_the_range_decides_what_is_white():
    row = rows_of(drawn(examples={"real": torch.full((1, 1, 8, 8), 255.0)}, value_range=(0, 255)))[0]
    assert (np.asarray(row.images[0].get_array()) == 1).all()


def test_nothing_overlaps_or_leaves_the_figure():
    figure = drawn(title="Lower right (4×4 px): blurred, " * 20, note="Usual cause: " * 40)
    figure.canvas.draw()
    places = [ax.get_position() for ax in figure.axes]
    assert min(place.x0 for place in places) >= 0
    assert max(place.x1 for place in places) <= 1
    assert min(place.y0 for place in places) >= 0
    rows = [ax.get_position() for ax in rows_of(figure)]
    assert all(upper.y0 > lower.y1 for upper, lower in pairwise(rows))
    assert all(row.x0 > places[0].x1 for row in rows)
    assert max(text.get_window_extent().x1 for text in figure.texts) <= figure.bbox.width
    title, note = (text.get_window_extent() for text in figure.texts)
    assert title.y0 >= note.y1
    top = note.y0
    assert all(ax.get_tightbbox().y1 <= top for ax in figure.axes)


def test_a_p_value_is_not_broken():
    sentence = "Lower left corner, 4×4 px: contrast − 66 %; explains 100 % of what is wrong there (p = 0.005)."
    title = drawn(title=sentence).texts[0].get_text()
    assert title.count("\n") == 1
    assert "p = 0.005" in title


def test_images_at_no_distance_have_no_bar():
    figure, without = drawn(), drawn(shares=None)
    assert len(without.axes) == len(figure.axes) - 1
    assert all(ax.get_legend() is None for ax in without.axes)
