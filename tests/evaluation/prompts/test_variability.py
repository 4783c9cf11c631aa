# SPDX-License-Identifier: Apache-2.0
"""W1KP: how alike the images of one prompt are."""

from itertools import combinations

import pytest
import torch
from _helpers.evaluations import samples_of

from genmonitor.evaluation.collective import SingleProcess
from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.variability import LeastVaried, PromptDiversity
from genmonitor.evaluation.results import Samples
from genmonitor.functional import calibrate, reusability_curve, w1kp_score
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


def reversed_samples(images):
    """Return samples and features in another order, as processes may hold them."""
    samples = samples_of(images)
    return Samples(samples.images.flip(0), samples.indices.flip(0)), images.flatten(1).flip(0)


@pytest.mark.parametrize("prompts", [(0, 1, 2), (0, 1, 0)], ids=["distinct", "one twice"])
def test_prompt_diversity_is_the_mean_w1kp(prompts):
    images = dull()
    expected = w1kp_score(images.flatten(1), torch.tensor(10 * prompts), calibration=CALIBRATION)
    assert measure(images, prompts)[0] == pytest.approx(float(expected["w1kp"]), rel=1e-5)


def test_prompt_diversity_lists_the_least_varied_first():
    least = measure(dull()).least
    assert [row.found.prompt for row in least] == ["c", "b", "a"]
    assert least[0].found.w1kp == 1 > least[1].found.w1kp > least[2].found.w1kp


def test_prompt_diversity_shows_the_closest_pair_then_others():
    images = dull()
    row = measure(images).least[2]
    features, (a, b) = images.flatten(1), row.found.closest_pair
    distances = {
        pair: float((features[pair[0]] - features[pair[1]]).norm()) for pair in combinations(range(0, 30, 3), 2)
    }
    assert (a, b) == min(distances, key=distances.get)
    assert row.found.closest == pytest.approx(float(1 - CALIBRATION(torch.tensor(distances[a, b] ** 2))), rel=1e-4)
    others = [i for i in range(0, 30, 3) if i not in (a, b)]
    assert torch.equal(row.images, images[[a, b, *others[:4]]])


def test_prompt_diversity_does_not_depend_on_the_order_of_the_samples():
    images = dull()
    samples, features = reversed_samples(images)
    found = PromptDiversity(CALIBRATION, Prompts(["a", "b", "c"]), 30).measure(features, samples, SingleProcess())
    expected = measure(images)
    assert found.reusability == expected.reusability
    assert [row.found for row in found.least] == [row.found for row in expected.least]
    assert all(torch.equal(x.images, y.images) for x, y in zip(found.least, expected.least, strict=True))


def test_prompt_diversity_has_the_curve_of_all_prompts():
    images = dull()
    expected = reusability_curve(images.flatten(1), torch.arange(30) % 3, calibration=CALIBRATION)
    assert measure(images).reusability == expected


@pytest.mark.parametrize(("prompts", "n"), [(("a",), 12), (("a", "b", "c"), 8)], ids=["one prompt", "two of one"])
def test_there_is_no_curve_of_too_little(prompts, n):
    assert measure(dull(n), prompts).reusability is None


def test_least_varied_caption_names_level_and_use():
    found = PromptVariability("a cat", 60, 1.0, "high", reusability=3, closest_pair=(7, 9), closest=0.996)
    caption = LeastVaried(found, torch.empty(0)).caption()
    assert caption == "high similarity\ngood for 3 of 50 images\nclosest pair 0.996"


def test_prompt_diversity_needs_two_samples_of_each_prompt():
    with pytest.raises(ValueError, match=r"at least 2 samples .* but 7 has one of 15\. Give n_samples=16"):
        PromptDiversity(CALIBRATION, Prompts(range(8)), 15)


def test_prompt_diversity_refuses_what_is_no_calibration():
    with pytest.raises(ValueError, match="`calibration` to be a W1KPCalibration, but got 5"):
        PromptDiversity(5, Prompts(range(3)), 9)
