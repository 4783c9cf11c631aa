# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

import numpy as np
import pytest
import torch

from genmonitor.plotting.images import GAP, paste, region_alone, side_by_side
from genmonitor.plotting.style import to_tiles

LABELS = np.repeat([[0, 1, 1, 2]], 4, axis=0)
SETS = {"real": torch.rand(20, 1, 8, 8), "new.npy": torch.rand(3, 1, 8, 8), "old.npy": torch.rand(16, 1, 8, 8)}


def test_every_set_has_its_name_and_its_images():
    figure = side_by_side(SETS, LABELS)
    assert [ax.get_title(loc="left") for ax in figure.axes] == list(SETS)
    widths = [ax.images[0].get_array().shape[1] for ax in figure.axes]
    assert widths[0] == widths[2] > widths[1]


@pytest.mark.parametrize("region", [0, 1, 2])
def test_a_region_alone_is_above_every_set(region):
    for ax, name in zip(side_by_side(SETS, LABELS, region).axes, SETS, strict=True):
        canvas = np.asarray(ax.images[0].get_array())
        whole = to_tiles(SETS[name].numpy(), (0, 1))[0]
        np.testing.assert_array_equal(canvas[96 + 16 : 2 * 96 + 16, :96], whole)  # the images as they are
        np.testing.assert_array_equal(canvas[:96, :96], region_alone(whole[None], LABELS, region)[0])


def test_no_region_is_shown_where_nothing_differs():
    for ax, name in zip(side_by_side(SETS, LABELS).axes, SETS, strict=True):
        canvas = np.asarray(ax.images[0].get_array())
        np.testing.assert_array_equal(canvas[:96, :96], to_tiles(SETS[name].numpy(), (0, 1))[0])


def test_words_too_long_for_the_figure_are_cut():
    figure = side_by_side({"real": SETS["real"]}, LABELS, 1, title="differs " * 40, note="images " * 60)
    figure.canvas.draw()
    right = [text.get_window_extent().x1 for text in figure.texts]
    assert max(right) <= figure.bbox.width


def test_sets_do_not_overlap():
    axes = side_by_side(SETS, LABELS).axes
    places = [ax.get_position() for ax in axes]
    assert all(one.x1 < other.x0 for one, other in pairwise(places))
    assert places[-1].x1 <= 1
    assert {round(place.y1, 6) for place in places} == {round(places[0].y1, 6)}


def test_each_image_stands_at_its_corner():
    tiles = np.random.default_rng(0).random((5, 6, 4, 3))
    canvas, corners = paste(tiles, columns=2)
    assert canvas.shape == (3 * 6 + 2 * GAP, 2 * 4 + GAP, 3)
    for tile, (x, y) in zip(tiles, corners, strict=True):
        assert (canvas[y : y + 6, x : x + 4] == tile).all()


def test_what_is_between_images_is_white():
    canvas, _ = paste(np.zeros((3, 6, 6, 3)), columns=2)
    assert (canvas[6 : 6 + GAP] == 1).all()
    assert (canvas[6 + GAP :, 6 + GAP :] == 1).all()


def test_a_row_that_is_not_full_leaves_the_canvas_narrow():
    assert paste(np.zeros((2, 6, 6, 3)), columns=8)[0].shape == (6, 12 + GAP, 3)
