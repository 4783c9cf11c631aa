# SPDX-License-Identifier: Apache-2.0
"""Captions given images: Scendi with its arguments swapped."""

import captions
import pytest
from captions import CAPTIONERS, add_shapes
from drawn_scenes import draw_scenes


def test_captioners_name_one_shape_each_as_often_as_it_is_drawn():
    scenes = draw_scenes(200, seed=0)
    faithful, careless = (captioner(scenes, 0) for captioner in CAPTIONERS.values())
    assert faithful == [f"a {shape}" for shape in scenes.shapes]
    assert sorted(faithful) == sorted(careless)
    assert 40 < sum(a == b for a, b in zip(faithful, careless, strict=True)) < 100


@pytest.mark.slow
def test_captions_that_images_ask_for_raise_vendi_but_not_scendi(space):
    good, bad = (add_shapes(space, captioner, 600) for captioner in CAPTIONERS)
    assert [row["vendi"] for row in good] == pytest.approx([row["vendi"] for row in bad])
    assert good[2]["vendi"] > 2 * good[0]["vendi"]
    assert good[2]["scendi"] < 1.1 < 1.3 < bad[2]["scendi"]
    assert good[2]["explained"] > 0.85 > 0.6 > bad[2]["explained"]


@pytest.mark.slow
def test_script_prints_a_row_per_number_of_shapes(run):
    said, _ = run(captions, "-n", "100")
    assert [line[0] for line in said.splitlines()[3:]] == ["1", "2", "3"]
