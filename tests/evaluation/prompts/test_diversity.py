# SPDX-License-Identifier: Apache-2.0
from itertools import combinations

import pytest
import torch
from _helpers.evaluations import samples_of

from genmonitor.distributed import SingleProcess
from genmonitor.evaluation import DiversitySettings
from genmonitor.evaluation.findings import headlines
from genmonitor.evaluation.prompts.diversity import (
    REAL,
    SCORES,
    DiversityEvaluation,
    DiversityPresenter,
    LeastVaried,
    SpreadTracker,
    diversity_values,
    least_varied,
    state,
)
from genmonitor.evaluation.prompts.estimates import ALL, Change, PromptGroups
from genmonitor.evaluation.prompts.modes import ModeEnds
from genmonitor.evaluation.values import grouped_by_chart
from genmonitor.functional import calibrate, reusability_curve, w1kp_score
from genmonitor.functional.w1kp.score import PromptVariability
from genmonitor.functional.w1kp.subsets import ReusabilityCurve
from genmonitor.images.prompts import Prompts
from genmonitor.images.sampler import Samples

LOST = [Change(f"p{i}", 0.04, 1.0, 9.0, 1e-9) for i in range(7)]
PROMPTS = PromptGroups(Prompts([f"p{i}" for i in range(7)]), 56)
FIRST = {"epoch": 0.0, "vendi": 9.0, "rke": 4.0, "scendi": 3.0, "scendi_prompt": 2.0, "prompt_share": 0.4}
LAST = FIRST | {"epoch": 1.0, "vendi": 5.0}
WITH_REAL = LAST | {"real_vendi": 12.0, "real_rke": 7.0, "precision": 0.5}
ALIKE = PromptVariability(
    "a cat\x1b[2J", outputs=9, w1kp=0.9, level="high", reusability=2, closest_pair=(0, 1), closest=1.0
)


def table(history, alike=(), lost=()):
    return DiversityPresenter(None, 24, None, lost, alike).summary((), history)


def test_diversity_finding_counts_modes():
    assert str(state(LAST, 24)) == (
        "5 modes in 24 images; the prompts explain 40 % of the variety; the model's own: Scendi 3."
    )


def test_diversity_finding_says_what_real_images_get():
    assert "5 modes in 24 images (real images: 12);" in str(state(WITH_REAL, 24))


@pytest.mark.parametrize(
    ("lost", "groups", "begin"),
    [
        (LOST[:1], PROMPTS, "Prompt 'p0' lost its variety: "),
        ([Change(ALL, 0.1, 1.0, 9.0, 1e-9)], PromptGroups(None, 8), "All samples lost their variety: "),
    ],
)
def test_diversity_message_begins_with_lost_variety(lost, groups, begin):
    found = (*SpreadTracker(groups).finding(lost, LAST), state(LAST, 24))
    said = " ".join(map(str, headlines(found)))
    assert said.startswith(begin)
    assert "; so did" not in said
    assert said.endswith(" 5 modes in 24 images; the prompts explain 40 % of the variety; the model's own: Scendi 3.")


def test_many_lost_prompts_are_one_finding():
    (found,) = SpreadTracker(PROMPTS).finding(LOST, LAST)
    assert str(found).endswith("so did 'p1' (4 %), 'p2' (4 %), 'p3' (4 %), 'p4' (4 %), 'p5' (4 %) and 1 more.")


def test_diversity_table_names_the_prompts_that_lost_their_variety():
    said = table([LAST], lost=LOST[:2]).splitlines()
    at = said.index("Prompts that lost their variety, by what is left of their spread")
    assert said[at + 1 : at + 3] == ["   4 % 'p0', best at epoch 9", "   4 % 'p1', best at epoch 9"]
    assert "lost" not in table([LAST])


def test_diversity_table_says_when_each_was_highest():
    (row,) = [line for line in table([FIRST, LAST]).splitlines() if line.startswith("modes (Vendi)")]
    assert row.split()[2:] == ["5.000", "9.000", "at", "epoch", "0"]


def test_diversity_table_has_what_real_images_get():
    (row,) = [line for line in table([WITH_REAL]).splitlines() if line.startswith("modes (RKE)")]
    assert row.split()[-1] == "7.000"


def test_diversity_table_leaves_out_what_was_not_measured():
    assert "precision" in table([WITH_REAL])
    assert "precision" not in table([LAST])


def test_diversity_table_quotes_prompts():
    said = table([LAST], [ALIKE])
    assert r"0.90 high   'a cat\x1b[2J'" in said  # no escape sequence reaches the terminal
    assert "\x1b" not in said


@pytest.mark.parametrize("calibrated", [True, False])
def test_diversity_charts_hold_w1kp_with_a_calibration(calibrated):
    assert ("w1kp" in {spec.key for spec in diversity_values(24, True, True, calibrated)}) is calibrated


def test_diversity_charts_say_of_how_many_samples():
    charts = grouped_by_chart(diversity_values(24, True, True, False))
    assert [x.key for x in charts["Modes of 24 images (Vendi grows with n)"]] == [
        "vendi",
        "rke",
        "real_vendi",
        "real_rke",
    ]


def test_diversity_values_are_all_explained():
    assert all(spec.about for spec in (*SCORES, *REAL))
    assert {spec.baseline_of for spec in REAL} <= {spec.key for spec in SCORES}


SCORED = {"vendi": 5.0, "rke": 4.0, "scendi": 3.0, "scendi_prompt": 2.0, "prompt_share": 0.4}
DRAWN = Samples(torch.rand(4, 1, 2, 2), torch.arange(4))
ANIMALS = Prompts(["a cat", "a dog", "a fish"])
INDICES = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]])


def texts(figure):
    return " | ".join(part.get_text() for part in figure.findobj(lambda part: hasattr(part, "get_text")))


def a_prompt():
    found = PromptVariability(
        "a dog", outputs=8, w1kp=0.9, level="high", reusability=2, closest_pair=(1, 4), closest=0.95
    )
    return LeastVaried(found, torch.rand(6, 1, 2, 2))


def of_diversity(least=(), reusability=None, **values):
    ends = ModeEnds(torch.rand(2, 4, 1, 2, 2), INDICES)
    evaluation = DiversityEvaluation(SCORED | values, [0.75, 0.25], ends, list(least), reusability=reusability)
    history = [{"epoch": epoch, "step": epoch, **evaluation.values} for epoch in (0, 1)]
    return DiversityPresenter(ANIMALS, 24, (0.0, 1.0)).figures(evaluation, history, DRAWN)


def test_diversity_figures_without_a_calibration():
    assert of_diversity().keys() == {"modes"}


def test_diversity_figures_draw_the_least_varied_prompts():
    drawn = texts(of_diversity([a_prompt()])["least_varied"]())
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


CALIBRATION = calibrate(torch.rand(60, 4, generator=torch.Generator().manual_seed(9)))


def dull(n=30):
    """Return images of 3 prompts in turn: those of the last are all the same, those of the second nearly."""
    images = torch.rand(n, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    images[1::3] = 0.95 * 0.3 + 0.05 * images[1::3]
    images[2::3] = 0.3
    return images


def measure(images, prompts=("a", "b", "c")):
    return least_varied(images.flatten(1), samples_of(images), Prompts(prompts), CALIBRATION, SingleProcess())


@pytest.mark.parametrize("prompts", [(0, 1, 2), (0, 1, 0)], ids=["distinct", "one twice"])
def test_least_varied_gives_the_mean_w1kp(prompts):
    images = dull()
    expected = w1kp_score(images.flatten(1), torch.tensor(10 * prompts), calibration=CALIBRATION)
    assert measure(images, prompts)[0] == pytest.approx(float(expected["w1kp"]), rel=1e-5)


def test_least_varied_lists_the_least_varied_first():
    least = measure(dull())[1]
    assert [row.found.prompt for row in least] == ["c", "b", "a"]
    assert least[0].found.w1kp == 1 > least[1].found.w1kp > least[2].found.w1kp


def test_least_varied_shows_the_closest_pair_then_others():
    images = dull()
    row = measure(images)[1][2]
    features, (a, b) = images.flatten(1), row.found.closest_pair
    distances = {
        pair: float((features[pair[0]] - features[pair[1]]).norm()) for pair in combinations(range(0, 30, 3), 2)
    }
    assert (a, b) == min(distances, key=distances.get)
    assert row.found.closest == pytest.approx(float(1 - CALIBRATION(torch.tensor(distances[a, b] ** 2))), rel=1e-4)
    others = [i for i in range(0, 30, 3) if i not in (a, b)]
    assert torch.equal(row.images, images[[a, b, *others[:4]]])


def test_least_varied_shows_images_wherever_they_are():
    images = dull()
    samples = samples_of(images)
    moved = Samples(samples.images.flip(0), samples.indices.flip(0))  # as processes may hold them
    found = least_varied(images.flatten(1), moved, Prompts(["a", "b", "c"]), CALIBRATION, SingleProcess())
    assert all(torch.equal(x.images, y.images) for x, y in zip(found[1], measure(images)[1], strict=True))


def test_least_varied_has_the_curve_of_all_prompts():
    images = dull()
    expected = reusability_curve(images.flatten(1), torch.arange(30) % 3, calibration=CALIBRATION)
    assert measure(images)[2] == expected


@pytest.mark.parametrize(("prompts", "n"), [(("a",), 12), (("a", "b", "c"), 8)], ids=["one prompt", "two of one"])
def test_there_is_no_curve_of_too_little(prompts, n):
    assert measure(dull(n), prompts)[2] is None


def test_least_varied_caption_names_level_and_use():
    found = PromptVariability("a cat", 60, 1.0, "high", reusability=3, closest_pair=(7, 9), closest=0.996)
    caption = LeastVaried(found, torch.empty(0)).caption()
    assert caption == "high similarity\ngood for 3 of 50 images\nclosest pair 0.996"


def test_w1kp_needs_two_samples_of_each_prompt():
    with pytest.raises(ValueError, match=r"at least 2 samples .* but 7 has one of 15\. Give n_samples=16"):
        DiversitySettings.of(range(8), n_samples=15, calibration=CALIBRATION)


def test_w1kp_refuses_what_is_no_calibration():
    with pytest.raises(ValueError, match="`calibration` to be a W1KPCalibration, but got 5"):
        DiversitySettings.of(range(3), n_samples=9, calibration=5)
