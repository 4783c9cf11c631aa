# SPDX-License-Identifier: Apache-2.0
import io
import sys

import pytest

from genmonitor.evaluation.progress import no_progress, terminal_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("progress", [no_progress, terminal_progress])
def test_progress_goes_over_everything(progress):
    assert list(progress(range(3), "clusters")) == [0, 1, 2]


def test_terminal_progress_names_what_it_does(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    list(terminal_progress(range(3), "clusters"))
    assert "clusters" in sys.stderr.getvalue()


def test_terminal_progress_stays_out_of_files(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    list(terminal_progress(range(3), "clusters"))
    assert sys.stderr.getvalue() == ""
