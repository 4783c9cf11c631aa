# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import pytest

from genmonitor.loggers import background
from genmonitor.loggers.attempt import Attempt
from genmonitor.loggers.deferred import Deferred


class Beside:
    """Stands for the process: it takes work and does it when asked to."""

    def __init__(self, ready=True, takes=True):
        self.ready, self.takes, self.taken = ready, takes, []

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
def deferred(said, rows):
    return Deferred(Attempt(said.append), SimpleNamespace(finish_evaluation=rows.append), beside=True)


@pytest.mark.parametrize(
    "process", [None, Beside(ready=False), Beside(takes=False)], ids=["none", "loading", "refuses"]
)
def test_work_is_done_here_where_no_process_takes_it(monkeypatch, deferred, rows, process):
    monkeypatch.setattr(background, "running", lambda: process)
    results = []
    deferred(("page",), 8, lambda: "drawn", results.append)
    assert (results, rows) == (["drawn"], [])


def test_what_was_done_beside_is_handed_on_later_and_ends_its_row(monkeypatch, deferred, rows):
    process, results = Beside(), []
    monkeypatch.setattr(background, "running", lambda: process)
    assert deferred.ready
    deferred(("figure", "curves"), 8, lambda: "drawn", results.append)
    deferred(("page",), 8, lambda: "written", results.append)
    assert results == []
    process.deliver()
    assert (results, rows) == (["drawn", "written"], [8, 8])
    assert [may_skip for *_, may_skip in process.taken] == [True, False]


def test_work_that_must_be_done_here_is(monkeypatch, deferred):
    process, results = Beside(), []
    monkeypatch.setattr(background, "running", lambda: process)
    deferred(("figure",), 8, lambda: "drawn", results.append, here=True)
    assert (results, process.taken) == (["drawn"], [])


def test_nothing_is_done_beside_unless_asked_for(monkeypatch, said):
    monkeypatch.setattr(background, "running", Beside)
    monkeypatch.setattr(background, "start", lambda: pytest.fail("started"))
    alone = Deferred(Attempt(said.append), SimpleNamespace(), beside=False)
    alone.start()
    assert not alone.ready


def test_failure_of_either_place_is_said_and_stops_nothing(monkeypatch, deferred, said, rows):
    def fails():
        raise ArithmeticError("no ink")

    process = Beside()
    monkeypatch.setattr(background, "running", lambda: process)
    deferred(("figure",), 8, fails, print)
    process.deliver()
    deferred(("figure",), 8, fails, print, here=True)
    assert rows == [8]
    assert len(said) == 2
    assert all("ArithmeticError: no ink" in text for text in said)
