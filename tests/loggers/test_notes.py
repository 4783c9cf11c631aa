# SPDX-License-Identifier: Apache-2.0
import errno
import warnings

import pytest

from genmonitor.loggers.notes import Attempt, Notes


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
    assert some.items == [{"epoch": None, "step": None, "text": "Few images are there.", "alert": None, "since": None}]


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


# attempts


FULL = [OSError(errno.ENOSPC, "No space left on device", name) for name in ("a.png", "b.png")]
READ_ONLY = OSError(errno.EROFS, "Read-only file system")


def fails(error):
    def part():
        raise error

    return part


def test_each_kind_of_failure_is_said_once():
    said = []
    attempt = Attempt(said.append)
    for error in (*FULL, READ_ONLY, *FULL):
        attempt(fails(error))
    beginning = "part of an evaluation could not be shown or written. OSError: "
    assert said == [f"{beginning}{error}" for error in (FULL[0], READ_ONLY)]
    attempt.start()
    attempt(fails(FULL[0]))
    assert said[2:] == said[:1]


def test_a_mistake_in_code_is_said_with_where_it_is():
    said = []
    Attempt(said.append)(fails(KeyError("lost")))
    assert "Traceback" in said[0]
    assert "test_notes.py" in said[0]


def test_failures_are_raised_where_they_shall_be():
    with pytest.raises(OSError, match="No space left"):
        Attempt(print, raise_errors=True)(fails(FULL[0]))


def test_ctrl_c_is_never_caught():
    with pytest.raises(KeyboardInterrupt):
        Attempt(print)(fails(KeyboardInterrupt()))
