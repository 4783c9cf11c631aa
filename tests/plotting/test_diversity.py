# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import torch

from genmonitor.plotting.diversity import mode_samples


def test_each_mode_is_a_row_of_its_samples_with_their_prompts():
    images = torch.linspace(-1, 1, 12).view(2, 6, 1, 1, 1).expand(2, 6, 1, 8, 8)
    prompts = [[f"a{k}" for k in range(6)], [f"b{k}" for k in range(6)]]
    figure = mode_samples([0.25, 0.5], images, prompts, (-1, 1))
    shown = [float(ax.images[0].get_array()[0, 0, 0]) for ax in figure.axes]
    assert shown == pytest.approx(np.linspace(0, 1, 12), abs=1e-6)
    texts = [text.get_text() for text in figure.texts]
    assert [text for text in texts if text[0] in "ab" and len(text) == 2] == prompts[0] + prompts[1]
    assert "mode 1\n25 %" in texts
    assert "mode 2\n50 %" in texts
    assert texts.index("one end") < texts.index("the other end")
    lefts = [ax.get_position().x0 for ax in figure.axes[:6]]
    gaps = np.diff(lefts)
    assert gaps[2] > 1.2 * gaps[0] == pytest.approx(1.2 * gaps[1])


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("$5 for_a^cat", "$5 for_a^cat"),
        ("two\n lines\t", "two lines"),
        ("\u732b a cat", "? a cat"),
        ("a prompt of many words", "a prompt of many…"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_prompts_are_shown_as_they_are_in_one_short_line(prompt, shown):
    figure = mode_samples([1.0], torch.zeros(1, 2, 3, 8, 8), [[prompt, ""]])
    figure.canvas.draw()
    assert shown in {text.get_text() for text in figure.texts}
