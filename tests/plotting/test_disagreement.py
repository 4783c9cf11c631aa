# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import torch

from genmonitor.plotting.disagreement import (
    MODEL,
    REFERENCE,
    ModePrompts,
    PromptSides,
    mode_prompts,
    strip,
)
from genmonitor.plotting.style import FAINT


def sides(prompt="a cat", value=0.5, current=0.0, reference=1.0, k=2, size=(1, 8, 8)):
    return PromptSides(prompt, value, torch.full((k, *size), current), torch.full((k, *size), reference))


def texts(figure):
    return [text.get_text() for text in figure.texts]


def inside(figure):
    figure.canvas.draw()
    width, height = figure.get_size_inches() * figure.dpi
    boxes = [text.get_window_extent() for text in figure.texts] + [ax.get_tightbbox() for ax in figure.axes]
    boxes += [ax.get_legend().get_window_extent() for ax in figure.axes if ax.get_legend()]
    return all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height for box in boxes)


def test_a_mode_is_a_row_of_prompts_with_both_sides():
    modes = [
        ModePrompts("top 1", 0.03, [sides("a cat"), sides("a dog", 0.25)]),
        ModePrompts("bottom 1", -0.02, [sides("a cow")]),
        ModePrompts("similar", -1e-9, [sides("a cat")]),
    ]
    figure = mode_prompts(modes, (0, 1), "real images")
    found = texts(figure)
    assert [text for text in found if "a c" in text or "a d" in text] == [
        "0.50  a cat",
        "0.25  a dog",
        "0.50  a cow",
        "0.50  a cat",
    ]
    labels = {text.get_text(): text.get_color() for text in figure.texts}
    assert labels["top 1\n+0.0300"] == MODEL
    assert labels["bottom 1\n-0.0200"] == REFERENCE
    assert labels["similar\n+0.0000"] == FAINT
    shown = [float(np.asarray(ax.images[0].get_array())[0, 0, 0]) for ax in figure.axes]
    assert shown == 4 * [0, 255]
    assert [ax.spines["top"].get_edgecolor() != figure.axes[0].spines["top"].get_edgecolor() for ax in figure.axes] == (
        4 * [False, True]
    )
    tops = [ax.get_position().y1 for ax in figure.axes]
    assert tops[0] == tops[3] > tops[4] > tops[6]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("prompt", ["$5 for_a^cat <b>", "two\n lines\t", "\u732b a cat", "", "x" * 300, "word " * 90])
@pytest.mark.parametrize("size", [(1, 8, 8), (3, 40, 20), (3, 300, 300)])
def test_any_prompt_and_image_is_drawn_inside_the_figure(prompt, size):
    rows = [sides(prompt, k=3, size=size), sides("b", k=1, size=size)]
    assert inside(
        mode_prompts(
            [ModePrompts("top 1", 0.1, rows), ModePrompts("similar", 0.0, rows[:1])], (0, 1), "the start of training"
        )
    )


def test_a_strip_puts_images_beside_each_other():
    images = torch.stack([torch.full((1, 96, 96), value) for value in (-1.0, 0.0, 1.0)])
    picture = strip(images, (-1, 1))
    assert picture.dtype == np.uint8
    assert picture.shape == (96, 3 * 96 + 2 * 6, 3)
    assert [int(picture[50, x, 0]) for x in (50, 98, 150, 290)] == [0, 255, 128, 255]
