# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from drawn_scenes import COLORS, SHAPES, VOCABULARY, bag_of_words, describe, draw_scenes

PAINT = {"red": 0, "green": 1, "blue": 2}


def test_scenes_show_what_they_say():
    scenes = draw_scenes(200, seed=0)
    assert scenes.images.shape == (200, 3, 32, 32)
    assert -1 <= scenes.images.min() <= scenes.images.max() <= 1
    for image, color in zip(scenes.images, scenes.colors, strict=True):
        drawn = image.abs().amax(0) > 0.5
        assert image[:, drawn].mean(1).argmax() == PAINT[color]
        assert (image[:, ~(image.abs().amax(0) > 0)] == 0).all()
    # seen from the middle of what is drawn: a ring is hollow, a square fills its bounding box, a cross does not
    for image, shape in zip(scenes.images, scenes.shapes, strict=True):
        rows, columns = torch.where(image.abs().amax(0) > 0.5)
        box = (rows.max() - rows.min() + 1) * (columns.max() - columns.min() + 1)
        hollow = image[:, (rows.min() + rows.max()) // 2, (columns.min() + columns.max()) // 2].abs().max() < 0.5
        filled = len(rows) / box
        assert shape == ("ring" if hollow else "square" if filled > 0.8 else "cross")


def test_each_attribute_varies_by_itself():
    scenes = draw_scenes(3000, seed=1)
    counts = torch.zeros(3, 3)
    for shape, color in zip(scenes.shapes, scenes.colors, strict=True):
        counts[SHAPES.index(shape), list(COLORS).index(color)] += 1
    assert (counts / 3000 - 1 / 9).abs().max() < 0.03
    one_color = draw_scenes(3000, seed=1, colors=["blue"])
    assert one_color.shapes == scenes.shapes
    where = [image.abs().amax(1) > 0.5 for image in (scenes.images, one_color.images)]
    assert (where[0] == where[1]).float().mean() > 0.99


def test_draw_is_the_seeds_and_seeds_nothing():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    scenes = draw_scenes(20, seed=3)
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(draw_scenes(20, seed=3).images, scenes.images)
    assert not torch.equal(draw_scenes(20, seed=4).images, scenes.images)


def test_prompts_name_what_they_are_asked_to():
    scenes = draw_scenes(1, seed=0, shapes=["ring"], colors=["blue"])
    named = [scenes.prompts(shape, color)[0] for shape in (True, False) for color in (True, False)]
    assert named == ["a blue ring", "a ring", "a blue thing", "a thing"]


def test_words_are_counted():
    encoded = bag_of_words(["a red ring", "a thing"])
    assert [VOCABULARY[i] for i in encoded[0].nonzero().flatten()] == ["a", "ring", "red"]
    assert encoded.sum().item() == 5
    with pytest.raises(ValueError, match="but got dog"):
        bag_of_words(["a dog"])


def test_an_unknown_shape_is_refused():
    with pytest.raises(ValueError, match="a shape out of square, cross, ring, but got 'star'"):
        draw_scenes(3, seed=0, shapes=["star"])


def cosine(a, b):
    return torch.nn.functional.cosine_similarity(describe(a.images), describe(b.images)).mean()


def test_descriptions_are_alike_where_drawings_are():
    base = {"shapes": ["ring"], "colors": ["red"]}
    red_rings = draw_scenes(300, seed=0, **base)
    assert describe(red_rings.images).shape == (300, 93)
    assert cosine(red_rings, draw_scenes(300, seed=0, **base)) == pytest.approx(1)
    other_place = cosine(red_rings, draw_scenes(300, seed=7, **base))
    other_color = cosine(red_rings, draw_scenes(300, seed=0, shapes=["ring"], colors=["green"]))
    other_shape = cosine(red_rings, draw_scenes(300, seed=0, shapes=["cross"], colors=["red"]))
    other_both = cosine(red_rings, draw_scenes(300, seed=0, shapes=["cross"], colors=["green"]))
    assert 1 > other_place > 0.8
    assert 0.95 > other_color > other_both
    assert 0.95 > other_shape > other_both
