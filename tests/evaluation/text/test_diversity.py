# SPDX-License-Identifier: Apache-2.0
import pytest

from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.estimates import ALL, Change, PromptGroups
from genmonitor.evaluation.text.diversity import REAL, SCORES, SPREAD, DiversityPresenter, diversity_values, state
from genmonitor.evaluation.values import grouped_by_chart
from genmonitor.functional.w1kp import PromptVariability

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
    found = (*SPREAD.findings(lost, LAST, groups), state(LAST, 24))
    said = DiversityPresenter(None, 24, None).message(found, LAST)
    assert said.startswith(begin)
    assert "; so did" not in said
    assert said.endswith(
        " 5 modes in 24 images; the prompts explain 40 % of the variety; the model's own: Scendi 3 (epoch 1)"
    )


def test_many_lost_prompts_are_one_finding():
    (found,) = SPREAD.findings(LOST, LAST, PROMPTS)
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
