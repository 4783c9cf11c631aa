# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor import PixelPartition
from genmonitor._place_names import describe_area, describe_place


def marked(*rows):
    return torch.tensor([[c == "x" for c in row] for row in rows])


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        (["xxxx", "xxxx", "xxxx", "xxxx"], "whole image"),
        (["xxxx", "xxxx", "xxxx", "..xx"], "most of the image"),
        (["xx..", "xx..", "....", "...."], "upper left"),
        (["....", "....", "..xx", "..xx"], "lower right"),
        (["....", ".xx.", ".xx.", "...."], "center"),
        (["....", "...x", "...x", "...."], "middle right"),
        ([".xx.", "....", "....", "...."], "upper middle"),
        (["xxxx", "....", "....", "...."], "top edge"),
        (["....", "....", "....", "xxxx"], "bottom edge"),
        (["xxxx", "xxxx", "....", "...."], "upper half"),
        (["x...", "x...", "x...", "x..."], "left edge"),
        (["..xx", "..xx", "..xx", "..xx"], "right half"),
        (["....", "xxxx", "xxxx", "...."], "middle band"),
        (["xxxxx", "x...x", "x...x", "x...x", "xxxxx"], "outer ring"),
        (["x..x", "x..x", "x..x", "x..x"], "left edge and right edge"),
        (["x.x.x", ".....", "x.x.x", ".....", "x.x.x"], "scattered"),
        (["......", "......", "......", "......", "x.x.x.", "......"], "scattered, lower half"),
    ],
)
def test_place_is_that_of_the_marked_sites(rows, place):
    assert describe_place(marked(*rows)) == place


@pytest.mark.parametrize(
    ("top", "bottom", "left", "right", "words"),
    [
        (0, 32, 0, 40, "whole image"),
        (24, 32, 32, 40, "lower right corner, 8×8 px"),
        (22, 30, 30, 37, "lower right, 7×8 px"),
        (0, 3, 5, 36, "top edge, 31×3 px"),
        (3, 6, 0, 40, "top edge, 40×3 px"),
        (8, 10, 0, 40, "upper band, 40×2 px"),
        (21, 23, 0, 40, "lower band, 40×2 px"),
        (0, 32, 6, 10, "left band, 4×32 px"),
        (12, 20, 16, 24, "center, 8×8 px"),
        (0, 10, 16, 24, "upper middle, 8×10 px"),
    ],
)
def test_an_area_is_told_by_place_and_size(top, bottom, left, right, words):
    inside = torch.zeros(32, 40, dtype=torch.bool)
    inside[top:bottom, left:right] = True
    assert describe_area(inside) == words


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_border_is_told_by_its_width(width):
    inside = torch.ones(32, 40, dtype=torch.bool)
    inside[width:-width, width:-width] = False
    assert describe_area(inside) == f"border, {width} px wide"


def test_an_area_that_leaves_its_box_empty_is_told_by_its_pixels():
    assert describe_area(torch.eye(20).bool()) == "center, 20 px"
    two = torch.zeros(20, 20, dtype=torch.bool)
    two[2:5, 1:4] = two[15:18, 16:19] = True
    assert describe_area(two) == "upper left and lower right, 18 px"
    nearly_all = torch.zeros(16, 16, dtype=torch.bool)
    nearly_all[:, :6] = nearly_all[6:10, :14] = True
    assert describe_area(nearly_all) == "middle left, 128 px"  # not 14×16 px


def test_an_area_that_reaches_all_edges_is_no_corner():
    below_diagonal = torch.ones(8, 8).tril(-1).bool()
    below_diagonal[0, 0] = below_diagonal[7, 7] = True
    assert describe_area(below_diagonal) == "lower left, 30 px"


def test_partition_knows_where_its_labels_are():
    grid = PixelPartition.grid((9, 9), 3, 3)
    places = [grid.location(label) for label in range(1, 10)]
    assert places[0::4] == ["upper left", "center", "lower right"]
    assert len(set(places)) == 9
    with pytest.raises(ValueError, match=r"`label` to be one of \[1, 2, .*\], but got 0"):
        grid.location(0)
