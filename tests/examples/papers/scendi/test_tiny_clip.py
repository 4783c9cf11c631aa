# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from tiny_clip import COLORS, SHAPES, WORDS, accuracy, captions, count_words, draw_scenes, train_tiny_clip, write


def test_captions_name_all_there_is_to_see():
    scenes = draw_scenes(200, seed=0)
    for caption, image, color, shape in zip(captions(scenes), scenes.images, scenes.colors, scenes.shapes, strict=True):
        _, size, *named, side = caption.split()
        assert named == [color, shape]
        drawn = image.abs().amax(0) > 0.5
        middle = drawn.nonzero()[:, 1].float().mean()
        assert side == ("left" if middle < 15.5 else "right") or abs(middle - 15.5) < 1
        assert size in ("small", "large")


def test_words_are_counted_and_others_not_read():
    counts = count_words(["a small red ring left", "a thing"])
    assert [WORDS[i] for i in counts[0].nonzero().flatten()] == ["ring", "red", "small", "left"]
    assert counts[1].sum() == 0


def test_writing_is_white_at_the_top_or_bottom():
    gray = torch.zeros(60, 3, 32, 32)
    words = [(*SHAPES, *COLORS)[i % 6] for i in range(60)]
    images = write(gray, words, seed=0)
    assert torch.equal(images, write(gray, words, seed=0))
    assert not gray.any()
    rows = (images > 0.5).any(dim=(1, 3)).float()
    assert (images[:, :, 12:20] == 0).all()
    assert 0 <= images.min() <= images.max() <= 1
    assert (rows.sum(1) >= 4).all()
    at_top = rows[:, :12].any(1)
    assert 15 < at_top.sum() < 45
    assert (at_top != rows[:, 20:].any(1)).all()


def test_training_is_the_seeds_and_seeds_nothing():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    models = [train_tiny_clip(steps=4, batch=8, n=20, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(torch.rand(2), expected)
    embedded = [model.images(draw_scenes(3, seed=2).images) for model in models]
    assert torch.equal(embedded[0], embedded[1])
    assert not torch.equal(embedded[0], embedded[2])


@pytest.mark.slow
def test_it_names_what_is_drawn_and_reads_what_is_written(space):
    scenes = draw_scenes(400, seed=1)
    x = space.images(scenes.images)
    torch.testing.assert_close(x.norm(dim=1), torch.ones(400))
    assert accuracy(x, space, tuple(COLORS), scenes.colors) > 0.97
    assert accuracy(x, space, SHAPES, scenes.shapes) > 0.9
    words = [SHAPES[i % 3] for i in range(90)]
    assert accuracy(space.images(write(torch.zeros(90, 3, 32, 32), words, seed=3)), space, SHAPES, words) > 0.97
