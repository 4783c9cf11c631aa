# SPDX-License-Identifier: Apache-2.0
import numpy as np

from genmonitor.plotting.grid import GAP, paste


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
