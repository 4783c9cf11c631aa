# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from genmonitor.evaluation.prompts.modes import Disagreement, Mode
from genmonitor.evaluation.text.disagreement import AGAINST, charts, message, mode_names, table, values

FOUND = Disagreement(0.5, [Mode(0.3, [])], [Mode(-0.2, []), Mode(-0.1, [])], Mode(0.0, []), [])
CHANGED = [("a cat", 0.8), ("a dog", 0.15), (3, 0.05), ("a fish", 0.001)]
FIRST = {"epoch": 0.0, "total": 0.9, "top_1": 0.3, "bottom_1": -0.2}
LAST = {"epoch": 1.0, "total": 0.5, "top_1": 0.4, "bottom_1": -0.1}


def test_mode_names_count_from_one():
    assert mode_names(2) == {"top": ["top_1", "top_2"], "bottom": ["bottom_1", "bottom_2"]}


def test_disagreement_values_are_0_where_modes_are_missing():
    assert values(FOUND, 2) == {"total": 0.5, "top_1": 0.3, "top_2": 0.0, "bottom_1": -0.2, "bottom_2": -0.1}


def test_an_estimated_total_has_its_standard_error():
    found = replace(FOUND, total_error=0.0123)
    assert values(found, 2) == values(FOUND, 2) | {"total_error": 0.0123}
    assert message(LAST | {"total_error": 0.0123}, [], "real images").endswith(": total 0.5 ± 0.01 (epoch 1)")


@pytest.mark.parametrize("against", AGAINST.values())
def test_disagreement_message_names_three_prompts(against):
    assert message(LAST, CHANGED, against) == (
        f"Disagreement with {against}: total 0.5, most of it at 'a cat' (80 %), 'a dog' (15 %), '3' (5 %) (epoch 1)"
    )


def test_disagreement_message_leaves_out_what_hardly_differs():
    assert message(LAST, CHANGED[3:], "real images").endswith("total 0.5 (epoch 1)")


def test_disagreement_message_quotes_and_cuts_prompts():
    said = message(LAST, [("\x1b[2J" + 60 * "x", 0.8)], "real images")
    assert "\x1b" not in said
    assert "x…'" in said


def test_disagreement_table_says_when_each_was_furthest_from_0():
    lines = {line.split()[0]: line.split()[1:] for line in table([FIRST, LAST], [], 1, "start").splitlines() if line}
    assert lines["total"] == ["0.5000", "0.9000", "at", "epoch", "0"]
    assert lines["top_1"] == ["0.4000", "0.4000", "at", "epoch", "1"]
    assert lines["bottom_1"] == ["-0.1000", "-0.2000", "at", "epoch", "0"]


def test_disagreement_table_lists_the_prompts_that_differ():
    said = table([LAST], CHANGED, 1, "data")
    assert "  80 %  'a cat'" in said
    assert "a fish" not in said


def test_disagreement_table_has_no_heading_without_prompts():
    assert "part  prompt" not in table([LAST], [], 1, "data")


def test_disagreement_charts_say_what_is_compared_with():
    assert charts(1, "start") == {
        "Disagreement with the start of training": ["total"],
        "Modes of it: above zero only the model, below only the start of training": ["top_1", "bottom_1"],
        "Seconds per evaluation": ["sampling_seconds", "metric_seconds"],
    }
