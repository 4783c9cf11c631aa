# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.figures import DisagreementFigures, DiversityEvaluation
from genmonitor.evaluation.prompts.modes import Disagreement, Mode, ModeEnds, SampleSet
from genmonitor.evaluation.prompts.variability import LeastVaried
from genmonitor.evaluation.results import Samples
from genmonitor.evaluation.text.diversity import DiversityPresenter
from genmonitor.functional.w1kp import PromptVariability, ReusabilityCurve

DRAWN = Samples(torch.rand(4, 1, 2, 2), torch.arange(4))
PAIR = Prompts(["a cat", "a dog"])
FOUND = Disagreement(
    total=0.5,
    top=[Mode(0.3, [("a cat", 1.0), ("a dog", 0.05)])],
    bottom=[Mode(-0.2, [("a dog", 1.0), ("a cat", 0.5)])],
    similar=Mode(0.001, [("a cat", 1.0)]),
    changed=[("a cat", 0.9), ("a dog", 0.1)],
)


def side(brightness):
    """Four pictures, two of each prompt."""
    return SampleSet(torch.rand(4, 2), torch.arange(4), torch.full((4, 1, 2, 2), brightness), torch.arange(4))


@pytest.fixture
def figures():
    return DisagreementFigures(FOUND, side(1.0), side(0.0), PAIR, (0.0, 1.0), "real images")


def texts(figure):
    return " | ".join(part.get_text() for part in figure.findobj(lambda part: hasattr(part, "get_text")))


def test_disagreement_modes_are_drawn_with_their_prompts(figures):
    drawn = texts(figures.modes()())
    assert "a dog" in drawn
    assert "real images" in drawn


def test_disagreement_changed_prompts_are_drawn(figures):
    drawn = texts(figures.changed()())
    assert "a cat" in drawn
    assert "90 %" in drawn


def test_disagreement_table_holds_each_prompt_and_its_part(figures):
    table = figures.table()
    assert table.columns == ["prompt", "part", "model", "real images"]
    assert [row[:2] for row in table.rows] == [["a cat", 0.9], ["a dog", 0.1]]


def test_disagreement_table_holds_pictures_of_both_sides(figures):
    _, _, model, reference = figures.table().rows[0]
    assert model.shape == reference.shape
    assert model[0, 0].tolist() == [255, 255, 255]
    assert reference[0, 0].tolist() == [0, 0, 0]


def test_disagreement_table_is_white_where_a_side_lacks_a_prompt():
    lacking = SampleSet(torch.rand(2, 2), torch.tensor([0, 2]), torch.zeros(2, 1, 2, 2), torch.tensor([0, 2]))
    figures = DisagreementFigures(FOUND, lacking, side(0.0), PAIR, (0.0, 1.0), "theirs", "mine")
    assert [bool((row[2] == 255).all()) for row in figures.table().rows] == [False, True]
    assert "mine" in texts(figures.changed()())


SCORES = {"vendi": 5.0, "rke": 4.0, "scendi": 3.0, "scendi_prompt": 2.0, "prompt_share": 0.4}
ANIMALS = Prompts(["a cat", "a dog", "a fish"])
INDICES = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]])


def least_varied():
    found = PromptVariability(
        "a dog", outputs=8, w1kp=0.9, level="high", reusability=2, closest_pair=(1, 4), closest=0.95
    )
    return LeastVaried(found, torch.rand(6, 1, 2, 2))


def of_diversity(least=(), reusability=None, **values):
    spectra = torch.tensor([0.6, 0.4]), torch.tensor([0.3, 0.1]), torch.tensor([0.45, 0.15])
    ends = ModeEnds(torch.rand(2, 4, 1, 2, 2), INDICES)
    evaluation = DiversityEvaluation(SCORES | values, spectra, ends, list(least), reusability=reusability)
    history = [{"epoch": epoch, "step": epoch, **evaluation.values} for epoch in (0, 1)]
    return DiversityPresenter(ANIMALS, 24, (0.0, 1.0)).figures(evaluation, history, DRAWN)


def test_diversity_figures_without_a_calibration():
    assert of_diversity().keys() == {"modes"}


def test_diversity_figures_draw_the_least_varied_prompts():
    drawn = texts(of_diversity([least_varied()])["least_varied"]())
    assert "a dog" in drawn
    assert "high similarity" in drawn
    assert "closest pair 0.95" in drawn


def test_diversity_figures_draw_how_many_images_a_prompt_is_good_for():
    curve = ReusabilityCurve((0.3, 0.6, 0.9), (0.2, 0.5, 0.8), (0.4, 0.7, 1.0), 3, 0, 0.85)
    assert "good for: 3 (3 to 4 or more)" in texts(of_diversity(reusability=curve)["reusability"]())


def test_diversity_modes_are_captioned_by_their_prompts():
    drawn = texts(of_diversity()["modes"]())
    assert all(ANIMALS.text(i) in drawn for i in range(3))


def test_diversity_modes_name_their_part_of_the_models_own():
    assert "75" in texts(of_diversity()["modes"]())
