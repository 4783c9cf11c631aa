# SPDX-License-Identifier: Apache-2.0
"""W1KP: how alike the images of one prompt are."""

import pytest
import torch
from _helpers.evaluations import samples_of

from genmonitor.evaluation.collective import SingleProcess
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.variability import LeastVaried, PromptDiversity
from genmonitor.functional import calibrate, w1kp_score
from genmonitor.functional.w1kp import PromptVariability

CALIBRATION = calibrate(torch.rand(60, 4, generator=torch.Generator().manual_seed(9)))


def dull(n=30):
    """Return images of 3 prompts in turn: those of the last are all the same, those of the second nearly."""
    images = torch.rand(n, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    images[1::3] = 0.95 * 0.3 + 0.05 * images[1::3]
    images[2::3] = 0.3
    return images


def measure(images, prompts=("a", "b", "c")):
    diversity = PromptDiversity(CALIBRATION, Prompts(prompts), len(images))
    return diversity.measure(images.flatten(1), samples_of(images), SingleProcess())


@pytest.mark.parametrize("prompts", [(0, 1, 2), (0, 1, 0)], ids=["distinct", "one twice"])
def test_prompt_diversity_is_the_mean_w1kp(prompts):
    images = dull()
    expected = w1kp_score(images.flatten(1), torch.tensor(10 * prompts), calibration=CALIBRATION)
    assert measure(images, prompts)[0] == pytest.approx(float(expected["w1kp"]), rel=1e-5)


def test_prompt_diversity_lists_the_least_varied_first():
    _, least = measure(dull())
    assert [row.found.prompt for row in least] == ["c", "b", "a"]
    assert least[0].found.w1kp == 1 > least[1].found.w1kp > least[2].found.w1kp


def test_prompt_diversity_shows_images_of_the_prompt():
    images = dull()
    _, least = measure(images)
    assert torch.equal(least[2].images, images[0:18:3])


def test_least_varied_caption_names_level_and_use():
    found = PromptVariability("a cat", outputs=60, w1kp=1.0, level="high", reusability=3)
    assert LeastVaried(found, torch.empty(0)).caption() == "high similarity\ngood for 3 of 50 images"


def test_prompt_diversity_needs_two_samples_of_each_prompt():
    with pytest.raises(ValueError, match=r"at least 2 samples .* but 7 has one of 15\. Give n_samples=16"):
        PromptDiversity(CALIBRATION, Prompts(range(8)), 15)


def test_prompt_diversity_refuses_what_is_no_calibration():
    with pytest.raises(ValueError, match="`calibration` to be a W1KPCalibration, but got 5"):
        PromptDiversity(5, Prompts(range(3)), 9)
