# SPDX-License-Identifier: Apache-2.0
import warnings

import pytest

from genmonitor.loggers.notes import Notes


def notes(inform=print):
    return Notes("Name", warnings.warn, inform)


def of_run_and_evaluation():
    out = notes()
    out.record("Of the run.")
    out.set_moment(2, 8)
    for _ in range(2):
        out.record("Of an evaluation.")
    return out


def test_note_is_warned_of_and_kept_as_a_sentence():
    some = notes()
    with pytest.warns(UserWarning, match=r"^Name: few images are there\.$"):
        some.add("few images are there")
    assert some.items == [{"epoch": None, "step": None, "text": "Few images are there."}]


def test_what_is_said_in_the_terminal_is_not_kept(capsys):
    some = notes()
    some.inform("regions were found.")
    with pytest.warns(UserWarning, match=r"^Name: 3 figures were skipped\.$"):
        some.warn("3 figures were skipped")
    assert capsys.readouterr().out == "Name: regions were found.\n"
    assert some.items == []


def test_notes_are_of_the_moment_and_kept_once():
    some = of_run_and_evaluation()
    assert some.step == 8
    some.set_whole_run()
    assert some.step == 0
    some.record("Of the run too.")
    assert [(note["epoch"], note["step"]) for note in some.items] == [(None, None), (2, 8), (None, None)]


def test_curves_that_start_anew_leave_the_notes_of_the_run():
    some = of_run_and_evaluation()
    some.forget_evaluations()
    assert [note["text"] for note in some.items] == ["Of the run."]
    some.reset()
    assert some.items == []


def test_state_holds_the_notes_of_evaluations():
    some, other = of_run_and_evaluation(), notes()
    other.load_state_dict(some.state_dict())
    assert other.items == some.items[1:]
    other.items[0]["text"] = "Changed."
    assert some.items[1]["text"] == "Of an evaluation."
