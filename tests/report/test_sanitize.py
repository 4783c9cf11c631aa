# SPDX-License-Identifier: Apache-2.0
import pytest

from genmonitor.report.sanitize import Note, as_bands, as_charts, as_notes, as_number, as_record, as_texts


@pytest.mark.parametrize("value", [None, True, "0.5", [0.5], {}, float("nan"), float("-inf"), 10**400])
def test_as_number_refuses_what_is_no_finite_number(value):
    assert as_number(value) is None
    assert as_record({"a": value, "b": 0.5, "c": 3}) == {"b": 0.5, "c": 3}


@pytest.mark.parametrize("content", [None, 7, "text", [], [[]], {}])
def test_everything_else_gives_nothing(content):
    assert as_record(content) == as_bands(content) == as_charts(content) == as_texts(content) == {}


def test_as_charts_keeps_lists_of_names():
    assert as_charts({"CMS": ["image", 2], "broken": "image"}) == {"CMS": ["image", "2"], "broken": []}


def test_as_notes_keeps_those_with_a_text():
    notes = [{"text": "a", "epoch": 1, "step": 9}, {"text": "b", "epoch": None}, {"epoch": 2}, "c", {"text": 7}]
    assert as_notes(notes) == [Note("a", 1, 9), Note("b"), Note("7")]
