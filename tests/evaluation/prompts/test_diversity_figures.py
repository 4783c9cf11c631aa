# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.diversity_figures import DiversityEvaluation, evaluation_figures
from genmonitor.evaluation.prompts.diversity_modes import ModeEnds
from genmonitor.evaluation.prompts.variability import LeastVaried
from genmonitor.functional.w1kp import PromptVariability, ReusabilityCurve

SCORES = {"vendi": 5.0, "rke": 4.0, "scendi": 3.0, "scendi_prompt": 2.0, "prompt_share": 0.4}
PROMPTS = Prompts(["a cat", "a dog", "a fish"])
INDICES = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]])


def least_varied():
    found = PromptVariability(
        "a dog", outputs=8, w1kp=0.9, level="high", reusability=2, closest_pair=(1, 4), closest=0.95
    )
    return LeastVaried(found, torch.rand(6, 1, 2, 2))


def figures(least=(), reusability=None, **values):
    spectra = torch.tensor([0.6, 0.4]), torch.tensor([0.3, 0.1]), torch.tensor([0.45, 0.15])
    ends = ModeEnds(torch.rand(2, 4, 1, 2, 2), INDICES)
    evaluation = DiversityEvaluation(SCORES | values, spectra, ends, list(least), reusability=reusability)
    history = [{"epoch": epoch, "step": epoch, **evaluation.values} for epoch in (0, 1)]
    return evaluation_figures(evaluation, history, PROMPTS, 24, (0.0, 1.0))


def texts(figure):
    return " | ".join(part.get_text() for part in figure.findobj(lambda part: hasattr(part, "get_text")))


def test_diversity_figures_without_a_calibration():
    assert figures().keys() == {"curves", "spectrum", "modes"}


def test_diversity_figures_draw_the_least_varied_prompts():
    drawn = texts(figures([least_varied()])["least_varied"]())
    assert "a dog" in drawn
    assert "high similarity" in drawn
    assert "closest pair 0.95" in drawn


def test_diversity_figures_draw_how_many_images_a_prompt_is_good_for():
    curve = ReusabilityCurve((0.3, 0.6, 0.9), (0.2, 0.5, 0.8), (0.4, 0.7, 1.0), 3, 0, 0.85)
    assert "good for: 3 (3 to 4 or more)" in texts(figures(reusability=curve)["reusability"]())


def test_diversity_modes_are_captioned_by_their_prompts():
    drawn = texts(figures()["modes"]())
    assert all(PROMPTS.text(i) in drawn for i in range(3))


def test_diversity_modes_name_their_part_of_the_models_own():
    assert "75" in texts(figures()["modes"]())


@pytest.mark.parametrize("name", ["precision", "recall", "density", "coverage"])
def test_diversity_curves_draw_what_was_measured(name):
    drawn = [list(line.get_ydata()) for axes in figures(**{name: 0.123})["curves"]().axes for line in axes.lines]
    assert [0.123, 0.123] in drawn
