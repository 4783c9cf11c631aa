# SPDX-License-Identifier: Apache-2.0
import pytest

from genmonitor.evaluation.findings import Area, FaultKind, Finding
from genmonitor.evaluation.values import ValueSpec
from genmonitor.report.sanitize import Note, as_bands, as_findings, as_notes, as_number, as_record, as_values


@pytest.mark.parametrize("value", [None, True, "0.5", [0.5], {}, float("nan"), float("-inf"), 10**400])
def test_as_number_refuses_what_is_no_finite_number(value):
    assert as_number(value) is None
    assert as_record({"a": value, "b": 0.5, "c": 3}) == {"b": 0.5, "c": 3}


@pytest.mark.parametrize("content", [None, 7, "text", [], [[]], {}])
def test_everything_else_gives_nothing(content):
    assert as_record(content) == as_bands(content) == {}
    assert as_values(content) == as_findings(content) == []


def test_declarations_that_are_not_whole_are_left_out():
    whole = ValueSpec("mmd", scale="log", detail=True)
    broken = [
        {"key": "a", "scale": "upside down"},
        {"scale": "log"},
        {"key": "b", "chart": ["c"]},
        3,
        None,
        {"key": ""},
    ]
    assert as_values([whole.to_dict() | {"from": "a later version"}, *broken]) == [whole]


def test_findings_that_are_not_whole_are_left_out():
    whole = Finding("Darker.", Area("image"), "darker", None, False, kinds=(FaultKind("darker", 0.1, "", 0.5),))
    broken = [whole.to_dict() | change for change in ({"text": 3}, {"area": "image"}, {"kinds": [3]})]
    assert as_findings([whole.to_dict(), *broken, {"text": "half"}, None]) == [whole]


def test_as_notes_keeps_those_with_a_text():
    notes = [{"text": "a", "epoch": 1, "step": 9}, {"text": "b", "epoch": None}, {"epoch": 2}, "c", {"text": 7}]
    assert as_notes(notes) == [Note("a", 1, 9), Note("b"), Note("7")]
