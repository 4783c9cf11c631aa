# SPDX-License-Identifier: Apache-2.0
import errno
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import pytest
from matplotlib.font_manager import fontManager

from genmonitor.loggers import worker
from genmonitor.loggers.notes import Attempt
from genmonitor.loggers.worker import Jobs, Settings


class Fake:
    """Stands for the worker: it takes work and does it when asked to."""

    def __init__(self, ready=True, takes=True):
        self.ready, self.takes, self.taken, self.lost = ready, takes, [], False

    def submit(self, key, work, then, may_skip):
        if not self.takes:
            raise TypeError("cannot pickle")
        self.taken.append((key, work, then, may_skip))

    def deliver(self):
        for _, work, then, _ in self.taken:
            then(work)


@pytest.fixture
def said():
    return []


@pytest.fixture
def rows():
    return []


@pytest.fixture
def jobs(said, rows):
    return Jobs(Attempt(said.append), SimpleNamespace(finish_evaluation=rows.append), parallel=True)


@pytest.mark.parametrize("process", [None, Fake(ready=False), Fake(takes=False)], ids=["none", "loading", "refuses"])
def test_work_is_done_here_where_no_process_takes_it(monkeypatch, jobs, rows, process):
    monkeypatch.setattr(worker, "_running", process)
    results = []
    jobs(("page",), 8, lambda: "drawn", results.append)
    assert (results, rows) == (["drawn"], [])


def test_what_was_done_beside_is_handed_on_later_and_ends_its_row(monkeypatch, jobs, rows):
    process, results = Fake(), []
    monkeypatch.setattr(worker, "_running", process)
    assert jobs.ready
    jobs(("figure", "curves"), 8, lambda: "drawn", results.append)
    jobs(("page",), 8, lambda: "written", results.append)
    assert results == []
    process.deliver()
    assert (results, rows) == (["drawn", "written"], [8, 8])
    assert [may_skip for *_, may_skip in process.taken] == [True, False]


def test_work_that_must_be_done_here_is(monkeypatch, jobs):
    process, results = Fake(), []
    monkeypatch.setattr(worker, "_running", process)
    jobs(("figure",), 8, lambda: "drawn", results.append, inline=True)
    assert (results, process.taken) == (["drawn"], [])


def test_nothing_is_done_beside_unless_asked_for(monkeypatch, said):
    monkeypatch.setattr(worker, "_running", Fake())
    monkeypatch.setattr(worker, "start", lambda: pytest.fail("started"))
    alone = Jobs(Attempt(said.append), SimpleNamespace(), parallel=False)
    alone.start()
    assert not alone.ready


def test_failure_of_either_place_is_said_and_stops_nothing(monkeypatch, jobs, said, rows):
    def fails():
        raise ArithmeticError("no ink")

    process = Fake()
    monkeypatch.setattr(worker, "_running", process)
    jobs(("figure",), 8, fails, print)
    process.deliver()
    jobs(("figure",), 8, fails, print, inline=True)
    assert rows == [8]
    assert len(said) == 2
    assert all("ArithmeticError: no ink" in text for text in said)


def test_lost_worker_is_warned_of_once(monkeypatch, jobs, said):
    process = Fake()
    monkeypatch.setattr(worker, "_running", process)
    jobs(("figure",), 8, lambda: "drawn", print)
    process.ready, process.lost = False, True
    process.deliver()
    jobs(("figure",), 9, lambda: "drawn", print)
    assert said == ["the process that draws figures died, so training now waits for each figure."]


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
    assert "test_jobs.py" in said[0]


def test_failures_are_raised_where_they_shall_be():
    with pytest.raises(OSError, match="No space left"):
        Attempt(print, raise_errors=True)(fails(FULL[0]))


def test_ctrl_c_is_never_caught():
    with pytest.raises(KeyboardInterrupt):
        Attempt(print)(fails(KeyboardInterrupt()))


# matplotlib's settings


@pytest.fixture
def added(tmp_path, monkeypatch):
    """A font that the user has added."""
    monkeypatch.setattr(fontManager, "ttflist", list(fontManager.ttflist))
    path = str(tmp_path / "added.ttf")
    shutil.copy(Path(mpl.get_data_path(), "fonts", "ttf", "cmr10.ttf"), path)
    fontManager.addfont(path)
    return path


def known():
    return {font.fname for font in fontManager.ttflist}


def test_settings_hold_for_a_call_and_no_longer():
    with mpl.rc_context({"axes.titlesize": 31}):
        settings = pickle.loads(pickle.dumps(Settings.current()))
    before = mpl.rcParams["axes.titlesize"]
    assert settings.call(lambda: mpl.rcParams["axes.titlesize"]) == 31
    assert mpl.rcParams["axes.titlesize"] == before
    assert "backend" not in settings.parameters


def test_added_font_is_taken_along_where_it_is_used(added, monkeypatch):
    assert added not in Settings.current().fonts
    with mpl.rc_context({"font.family": "cmr10"}):
        settings = Settings.current()
    monkeypatch.setattr(fontManager, "ttflist", [font for font in fontManager.ttflist if font.fname != added])
    assert settings.call(lambda: added in known())
