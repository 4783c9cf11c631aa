# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.evaluation import DiversitySettings
from genmonitor.evaluation.diversity_findings import (
    REAL,
    SCORES,
    DiversityEvaluation,
    DiversityPresenter,
    SpreadTracker,
    diversity_values,
    state,
)
from genmonitor.evaluation.modes import ModeEnds
from genmonitor.evaluation.prompt_groups import ALL, Estimate, PromptGroups
from genmonitor.evaluation.tracker import Change
from genmonitor.findings.finding import headlines
from genmonitor.findings.values import grouped_by_chart
from genmonitor.functional import calibrate
from genmonitor.images.prompts import Prompts
from genmonitor.images.sampler import Samples

LOST = [Change(f"p{i}", 0.04, 1.0, 9.0, 1e-9) for i in range(7)]
PROMPTS = PromptGroups(Prompts([f"p{i}" for i in range(7)]), 56)
FIRST = {
    "epoch": 0.0,
    "vendi": 9.0,
    "rke": 4.0,
    "scendi": 3.0,
    "scendi_prompt": 2.0,
    "prompt_share": 0.4,
    "one_prompt_share": 0.3,
}
LAST = FIRST | {"epoch": 1.0, "vendi": 5.0}
SAID = "5 modes in 24 images; the prompts explain 40 % of the variety (one prompt for all: 30 %)"
SAID += "; the model's own: Scendi 3"
WITH_REAL = LAST | {"real_vendi": 12.0, "real_rke": 7.0, "precision": 0.5}


def test_diversity_finding_counts_modes():
    assert str(state(LAST, 24)) == f"{SAID}."


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
    assert said.endswith(f" {SAID}.")


def test_many_lost_prompts_are_one_finding():
    (found,) = SpreadTracker(PROMPTS).finding(LOST, LAST)
    assert str(found).endswith("so did 'p1' (0.04), 'p2' (0.04), 'p3' (0.04), 'p4' (0.04), 'p5' (0.04) and 1 more.")


@pytest.mark.parametrize(
    ("narrow", "error", "said"),
    [
        ({"p3": 0.01}, 0.001, "'p3' (spread 0.01, median 0.4)"),
        ({"p3": 0.05, "p0": 0.01}, 0.001, "'p0', 'p3' (spread 0.01, median 0.4)"),
        ({"p3": 0.01}, 0.05, ""),  # by chance
        ({"p3": 0.11}, 0.001, ""),
    ],
)
def test_a_prompt_far_narrower_than_a_typical_one_is_said(narrow, error, said):
    found = {f"p{i}": Estimate(0.4, 0.001, 8) for i in range(7)}
    found |= {name: Estimate(value, error, 8) for name, value in narrow.items()}
    tracker = SpreadTracker(PROMPTS)
    texts = [str(x) for x in tracker.narrow(found)]
    assert texts == ([f"Prompts that vary far less than a typical one: {said}."] if said else [])
    tracker.standing = [Change(name, 0.0, 1.0, 0, 1e-9) for name in narrow]
    assert not tracker.narrow(found)  # which is said already
    assert not tracker.narrow({})


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


SCORED = {"vendi": 5.0, "rke": 4.0, "scendi": 3.0, "scendi_prompt": 2.0, "prompt_share": 0.4, "one_prompt_share": 0.3}
DRAWN = Samples(torch.rand(4, 1, 2, 2), torch.arange(4))
ANIMALS = Prompts(["a cat", "a dog", "a fish"])
INDICES = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]])


def texts(figure):
    return " | ".join(part.get_text() for part in figure.findobj(lambda part: hasattr(part, "get_text")))


def of_diversity():
    ends = ModeEnds(torch.rand(2, 4, 1, 2, 2), INDICES)
    evaluation = DiversityEvaluation(SCORED, [0.75, 0.25], ends)
    return DiversityPresenter(ANIMALS, (0.0, 1.0)).figures(evaluation, [], DRAWN)


def test_diversity_figures_are_of_the_modes():
    assert of_diversity().keys() == {"modes"}


def test_diversity_modes_are_captioned_by_their_prompts():
    drawn = texts(of_diversity()["modes"]())
    assert all(ANIMALS.text(i) in drawn for i in range(3))


def test_diversity_modes_name_their_part_of_the_models_own():
    assert "75" in texts(of_diversity()["modes"]())


CALIBRATION = calibrate(torch.rand(60, 4, generator=torch.Generator().manual_seed(9)))


def test_w1kp_needs_two_samples_of_each_prompt():
    with pytest.raises(ValueError, match=r"at least 2 samples .* but 7 has one of 15\. Give n_samples=16"):
        DiversitySettings.of(range(8), n_samples=15, calibration=CALIBRATION)


def test_w1kp_refuses_what_is_no_calibration():
    with pytest.raises(ValueError, match="`calibration` to be a W1KPCalibration, but got 5"):
        DiversitySettings.of(range(3), n_samples=9, calibration=5)
