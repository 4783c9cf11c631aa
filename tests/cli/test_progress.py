# SPDX-License-Identifier: Apache-2.0
import io
import subprocess
import sys
import time

import pytest

from genmonitor.cli.processes import progress_shows, show_progress


def test_a_file_gets_a_line_for_each_stage(capsys):
    for stage in ("reading images", "comparing"):
        with show_progress(stage) as progress:
            assert list(progress([1, 2, 3], "some")) == [1, 2, 3]
    assert capsys.readouterr() == ("", "reading images …\ncomparing …\n")


def terminal(monkeypatch):
    """Let standard error look like a terminal; return what is written to it."""
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return screen


def test_a_terminal_sees_what_is_being_done_and_how_far_it_is(monkeypatch, capsys):
    screen = terminal(monkeypatch)
    with show_progress("reading images") as progress:
        for item in progress([1, 2, 3], "some files"):
            if item == 3:
                time.sleep(0.3)  # it is drawn ten times a second
    shown = screen.getvalue()
    assert capsys.readouterr().out == ""
    assert "reading images" in shown
    assert "some files" in shown
    assert "3/3" in shown or "2/3" in shown


def test_an_error_passes_and_the_line_goes_away(monkeypatch):
    screen = terminal(monkeypatch)
    with pytest.raises(KeyError, match="missing"), show_progress("reading images"):
        raise KeyError("missing")
    assert screen.getvalue().endswith("\r")  # over an empty line


def test_a_quiet_command_shows_nothing(monkeypatch):
    screen = terminal(monkeypatch)
    progress_shows(False)
    try:
        with show_progress("reading images") as progress:
            assert list(progress([1], "some files")) == [1]
    finally:
        progress_shows(True)
    assert screen.getvalue() == ""


def test_waiting_for_torch_is_said_before_torch_is_loaded():
    code = "import sys, genmonitor.cli.processes; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
