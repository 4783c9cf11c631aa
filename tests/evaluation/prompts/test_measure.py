# SPDX-License-Identifier: Apache-2.0
import pytest

from genmonitor.evaluation.data.prompts import Prompts
from genmonitor.evaluation.prompts.disagreement import DISTANCE
from genmonitor.evaluation.prompts.diversity import SPREAD
from genmonitor.evaluation.prompts.estimates import ALL, Change, PromptGroups
from genmonitor.evaluation.prompts.measure import CURVES, NAMED, quoted

RECORD = {"epoch": 16.0}


def changes(count):
    return [Change(f"p{i}", 0.02 + 0.01 * i, 0.5, 9.0, 1e-9) for i in range(count)]


def of_prompts(count):
    return PromptGroups(Prompts([f"p{i}" for i in range(count)]), 8 * count)


def test_quoted_prompts_cannot_move_a_cursor_and_are_cut():
    assert quoted("a\nb") == "'a\\nb'"
    assert len(quoted(99 * "x")) == 42


@pytest.mark.parametrize(("count", "end"), [(NAMED + 1, "'p5' (14 %)"), (NAMED + 3, "'p5' (14 %) and 2 more")])
def test_others_are_named_up_to_a_number(count, end):
    (alert,) = SPREAD.findings(changes(count), RECORD, of_prompts(count))
    assert alert.text.endswith(f"{end}.")


def test_alert_about_lost_variety_begins_with_the_finding():
    (alert,) = SPREAD.findings(changes(1), RECORD, of_prompts(1))
    assert (alert.area.name, alert.verdict, alert.measure) == ("prompt 'p0'", "lost its variety", "spread_1")
    assert alert.text == (
        "Prompt 'p0' lost its variety: at epoch 16 and the evaluation before, its samples have 4 % of the spread "
        "that they had at epoch 9, its best (p < 0.0001)."
    )


def test_alert_about_all_prompts_is_in_the_plural():
    (alert,) = SPREAD.findings([Change(ALL, 0.1, 1.0, 9.0, 1e-9)], RECORD, PromptGroups(None, 8))
    assert alert.measure == "spread_1"
    assert alert.text == (
        "All samples lost their variety: at epoch 16 and the evaluation before, the samples have 10 % of the spread "
        "that they had at epoch 9, their best (p < 0.0001)."
    )


def test_alert_about_the_data_gives_both_distances():
    found = [Change("a cat", 0.31, 0.002, 9.0, 1e-9), Change("a dog", 0.2, -0.001, 9.0, 1e-5)]
    (alert,) = DISTANCE.findings(found, RECORD, PromptGroups(Prompts(["a cat", "a dog"]), 16))
    assert (alert.area.name, alert.verdict) == ("prompt 'a cat'", "moved away from the data")
    assert (alert.measure, alert.fine, alert.p) == ("distance_1", False, 1e-9)
    assert alert.text == (
        "Prompt 'a cat' moved away from the data: at epoch 16 and the evaluation before, its samples are farther from "
        "real images than at epoch 9, its best (squared MMD 0.31, then 0.002; p < 0.0001); so did 'a dog' (0.2)."
    )


def test_there_is_no_alert_about_nothing():
    assert SPREAD.findings([], RECORD, of_prompts(1)) == []


def test_prompts_beyond_the_first_have_no_curves():
    groups = of_prompts(100)
    assert len(DISTANCE.specs(groups)) == CURVES
    (alert,) = DISTANCE.findings([Change("p99", 0.3, 0.1, 9.0, 1e-9)], RECORD, groups)
    assert alert.measure is None
