# SPDX-License-Identifier: Apache-2.0
import pytest

from genmonitor.evaluation.prompts.changes import Change
from genmonitor.evaluation.text.disagreement import DisagreementValues, moved_away
from genmonitor.evaluation.text.diversity import lost_variety, spread_values
from genmonitor.evaluation.text.prompts import NAMED, others, quoted

RECORD = {"epoch": 16.0}


def changes(count):
    return [Change(f"p{i}", 0.02 + 0.01 * i, 0.5, 9.0, 1e-9) for i in range(count)]


def test_quoted_prompts_cannot_move_a_cursor_and_are_cut():
    assert quoted("a\nb") == "'a\\nb'"
    assert len(quoted(99 * "x")) == 42


@pytest.mark.parametrize(("count", "end"), [(NAMED + 1, "'p5' (x)"), (NAMED + 3, "'p5' (x) and 2 more")])
def test_others_are_named_up_to_a_number(count, end):
    assert others(changes(count), lambda change: "x").endswith(end)


def test_alert_about_lost_variety_begins_with_the_finding():
    (alert,) = lost_variety(changes(1), RECORD, True, spread_values(["p0"]))
    assert (alert.area.name, alert.verdict, alert.measure) == ("prompt 'p0'", "lost its variety", "spread_1")
    assert alert.text == (
        "Prompt 'p0' lost its variety: at epoch 16 and the evaluation before, its samples have 4 % of the spread "
        "that they had at epoch 9, its best (p < 0.0001)."
    )


def test_alert_about_all_prompts_is_in_the_plural():
    (alert,) = lost_variety([Change("all samples", 0.1, 1.0, 9.0, 1e-9)], RECORD, False, {})
    assert alert.measure is None
    assert alert.text == (
        "All samples lost their variety: at epoch 16 and the evaluation before, the samples have 10 % of the spread "
        "that they had at epoch 9, their best (p < 0.0001)."
    )


def test_alert_about_the_data_gives_both_distances():
    found = [Change("a cat", 0.31, 0.002, 9.0, 1e-9), Change("a dog", 0.2, -0.001, 9.0, 1e-5)]
    (alert,) = moved_away(found, RECORD, True, DisagreementValues(1, "data", ["a cat", "a dog"]).distance)
    assert (alert.area.name, alert.verdict) == ("prompt 'a cat'", "moved away from the data")
    assert (alert.measure, alert.fine, alert.p) == ("distance_1", False, 1e-9)
    assert alert.text == (
        "Prompt 'a cat' moved away from the data: at epoch 16 and the evaluation before, its samples are farther from "
        "real images than at epoch 9, its best (squared MMD 0.31, then 0.002; p < 0.0001); so did 'a dog' (0.2)."
    )


def test_there_is_no_alert_about_nothing():
    assert lost_variety([], RECORD, True, {}) == []
    assert moved_away([], RECORD, True, {}) == []
