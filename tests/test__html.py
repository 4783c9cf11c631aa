# SPDX-License-Identifier: Apache-2.0
import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from genmonitor import PixelPartition
from genmonitor._html import heading_html, map_html, table_html, text_html, values_html
from genmonitor.plotting.style import cluster_color

PARTITION = PixelPartition(torch.tensor([[1, 1, 2], [1, 1, 0]]), patch_size=2)


def picture(html):
    """The pixels of the one picture in a page."""
    (data,) = re.findall(r'src="data:image/png;base64,([^"]*)"', html)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def rows(html):
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]
    return [[re.sub("<[^>]*>|&#9632;", "", cell).strip() for cell in row] for row in cells]


def test_map_has_the_colors_of_the_figures():
    drawn = picture(map_html(PARTITION.labels))
    expected = [[cluster_color(label) for label in row] for row in PARTITION.labels.tolist()]
    assert [["#" + "".join(f"{value:02X}" for value in color) for color in row] for row in drawn] == expected


@pytest.mark.parametrize(
    ("size", "style"), [((2, 4), "width:160px;height:80px"), ((64, 64), "width:160px;height:160px")]
)
def test_map_keeps_its_shape_on_the_page(size, style):
    assert style in map_html(torch.ones(size, dtype=torch.long))


def test_partition_says_how_large_and_where_each_region_is():
    shown = PixelPartition._repr_html_(PARTITION)
    assert rows(shown) == [
        ["region", "sites of 2×2 pixels", "where"],
        ["cluster_1", "4", PARTITION.location(1)],
        ["cluster_2", "1", "upper right"],
        ["constant", "1", "lower right"],
    ]
    assert PARTITION._repr_html_() == shown
    assert rows(PixelPartition._repr_html_(PixelPartition(PARTITION.labels)))[0][1] == "pixels"


def test_rows_of_regions_have_their_color_and_bad_ones_are_bold():
    shown = table_html(["region", "p"], [["cluster_1", 0.5], ["cluster_2", 0.005]], PARTITION.regions(), ["cluster_2"])
    fine, bad = re.findall(r"<tr>(.*?)</tr>", shown)[1:]
    assert f"color:{cluster_color(1)}" in fine
    assert f"color:{cluster_color(2)}" in bad
    assert ("bold" in fine, bad.count("bold")) == (False, 2)


def test_values_are_short():
    values = {"image": torch.tensor(0.123456789), "count": 3, "eigenvalues": torch.zeros(10)}
    assert rows(values_html(values)) == [
        ["name", "value"],
        ["image", "0.123457"],
        ["count", "3"],
        ["eigenvalues", "[10]"],
    ]


@pytest.mark.parametrize(
    "shown",
    [text_html("<b>"), heading_html("<b>"), heading_html("", "<b>"), table_html(["<b>"], [["<b>", "<b>"]])],
)
def test_text_is_escaped(shown):
    assert "&lt;b&gt;" in shown
    assert shown.replace("<p><b>", "").count("<b>") == 0
