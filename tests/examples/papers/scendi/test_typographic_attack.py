# SPDX-License-Identifier: Apache-2.0
"""A written word misleads the space, and taking it off brings what is drawn back."""

import pytest
import typographic_attack
from drawn_scenes import draw_scenes
from typographic_attack import attack, embeddings, measure


def test_a_third_of_the_words_is_right():
    images, shapes, words = attack(300, seed=0)
    assert shapes == draw_scenes(300, seed=0).shapes
    assert 70 < sum(shape == word for shape, word in zip(shapes, words, strict=True)) < 130
    assert (images != draw_scenes(300, seed=0).images).flatten(1).any(1).all()


@pytest.mark.slow
def test_words_mislead_until_they_are_removed(space):
    images, shapes, words = attack(600, seed=2)
    rows = {name: measure(space, x, shapes, words) for name, x in embeddings(space, images, words, 1000, 1).items()}
    attacked, removed, subtracted = rows.values()
    assert attacked["wrong_word"] < 0.3
    assert removed["wrong_word"] > attacked["wrong_word"] + 0.3
    assert removed["right_word"] > 0.6 > 0.3 > subtracted["right_word"]
    assert removed["same_word"] < attacked["same_word"] - 0.3
    assert removed["same_shape"] > attacked["same_shape"]


@pytest.mark.slow
def test_script_prints_a_row_per_embedding_and_draws(run, tmp_path):
    said, _ = run(typographic_attack, "-n", "250", "--out", str(tmp_path))
    assert all(name in said for name in ("no word", "attacked: x", "word removed: x - Γ* t", "subtracted: x - t"))
    assert (tmp_path / "attack.png").stat().st_size > 10_000
