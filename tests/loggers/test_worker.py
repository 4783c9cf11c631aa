# SPDX-License-Identifier: Apache-2.0
import math
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
import torch
from _helpers.loggers import NotReadBack, collect

from genmonitor.loggers import worker
from genmonitor.loggers.worker import MAX_WAITING, Worker, start


@pytest.fixture
def broken():
    """A process that has ended."""
    started = Worker()
    started._process.kill()
    yield started
    started.close()


def test_results_come_back_in_order_and_only_when_asked_for(beside):
    found = []
    for value in (4.0, 9.0, 16.0):
        beside.submit(value, partial(math.sqrt, value), partial(collect, found))
    time.sleep(0.3)
    assert found == []
    beside.drain()
    assert found == [2.0, 3.0, 4.0]


def test_work_is_done_in_another_process_with_tensors_as_arrays(beside):
    found = []
    beside.submit(0, os.getpid, partial(collect, found))
    beside.submit(1, partial(type, torch.ones(2)), partial(collect, found))
    beside.submit(2, partial(np.sum, [torch.ones(2, dtype=torch.bfloat16), torch.ones(2)]), partial(collect, found))
    beside.drain()
    assert found[0] != os.getpid()
    assert found[1:] == [np.ndarray, 4.0]


def test_work_is_that_of_its_moment(beside):
    found, values = [], [1.0, 2.0]
    beside.submit(0, partial(time.sleep, 0.1), partial(collect, []))
    beside.submit(1, partial(math.fsum, values), partial(collect, found))
    values.append(100.0)
    beside.drain()
    assert found == [3.0]


def test_what_the_process_cannot_do_is_tried_here(beside):
    found = []
    beside.submit(0, partial(math.sqrt, -1.0), found.append)
    beside.submit(1, partial(print, "not an answer"), found.append)
    beside.drain()
    with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
        found[0]()
    assert found[1]() is None


def test_later_work_of_the_same_name_takes_the_place_of_what_waits(beside):
    found = []
    beside.submit("first", partial(time.sleep, 0.3), partial(collect, []))
    time.sleep(0.1)
    for value in (1.0, 4.0, 9.0):
        beside.submit("same", partial(math.sqrt, value), partial(collect, found))
    beside.drain()
    assert (found, beside.skipped) == ([3.0], 0)


def test_what_has_waited_longest_is_skipped_where_too_much_waits(beside):
    found = []
    beside.submit("first", partial(time.sleep, 0.5), partial(collect, []))
    time.sleep(0.1)
    for value in range(MAX_WAITING + 3):
        beside.submit(value, partial(math.fabs, value), partial(collect, found))
    beside.drain()
    assert found == list(range(3, MAX_WAITING + 3))
    assert beside.skipped == 3
    beside.skipped = 0


def test_what_may_not_be_skipped_is_done_however_much_waits(beside):
    found = []
    beside.submit("first", partial(time.sleep, 0.5), partial(collect, []))
    time.sleep(0.1)
    beside.submit("page", partial(math.fabs, -1), partial(collect, found), may_skip=False)
    for value in range(MAX_WAITING):
        beside.submit(value, partial(math.fabs, value), partial(collect, found))
    beside.drain()
    assert found == [1, *range(1, MAX_WAITING)]
    beside.skipped = 0


def test_what_pickle_does_not_give_back_is_a_result_that_raises(beside):
    found = []
    beside.submit(0, partial(print, NotReadBack()), found.append)
    beside.drain()
    with pytest.raises(ValueError, match="not a number"):
        found[0]()


def test_interrupted_wait_can_be_taken_up(beside):
    found = []

    def interrupt(result):
        raise KeyboardInterrupt

    beside.submit(0, partial(math.sqrt, 1.0), interrupt)
    beside.submit(1, partial(math.sqrt, 4.0), partial(collect, found))
    with pytest.raises(KeyboardInterrupt):
        beside.drain()
    beside.drain()
    assert (found, beside.ready) == ([2.0], True)


def test_random_state_is_untouched_also_by_whoever_takes_results(beside):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    beside.submit(0, partial(math.sqrt, 1.0), lambda result: torch.rand(3))
    beside.drain()
    assert torch.equal(torch.get_rng_state(), before)


def test_what_a_process_that_ended_leaves_is_done_here(broken):
    found = []
    for value in (1.0, 4.0):
        broken.submit(value, partial(math.sqrt, value), partial(collect, found))
    broken.drain()
    broken.submit(9.0, partial(math.sqrt, 9.0), partial(collect, found))
    broken.drain()
    assert (found, broken.ready) == ([1.0, 2.0, 3.0], False)


def test_process_that_does_not_answer_is_given_up(monkeypatch):
    stuck, found = Worker(), []
    monkeypatch.setattr(worker, "PATIENCE", 0.2)
    os.kill(stuck._process.pid, signal.SIGSTOP)
    stuck.submit(0, partial(math.sqrt, 4.0), partial(collect, found))
    stuck.drain()
    assert found == [2.0]
    stuck.close()


def test_process_that_cannot_load_what_it_needs_is_never_ready(monkeypatch):
    monkeypatch.setattr(worker, "COMMAND", "raise SystemExit(3)")
    lacking, found = Worker(), []
    assert lacking._process.wait(60) == 3
    lacking.submit(0, partial(math.sqrt, 4.0), partial(collect, found))
    lacking.drain()
    assert (found, lacking.ready, lacking.lost) == ([2.0], False, False)
    lacking.close()


def refuse(*args):
    raise RuntimeError("can't start new thread")


def test_process_that_cannot_be_followed_is_ended_and_not_tried_again(monkeypatch):
    processes, popen = [], subprocess.Popen
    monkeypatch.setattr(worker, "_started", False)
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kw: processes.append(popen(*args, **kw)) or processes[-1])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(2):
        start()
        assert worker._running is None
    (process,) = processes
    assert process.returncode is not None


@pytest.mark.parametrize(("name", "value"), [("executable", None), ("executable", ""), ("frozen", True)])
def test_no_process_is_started_where_no_interpreter_takes_a_script(monkeypatch, name, value):
    monkeypatch.setattr(worker, "_started", False)
    monkeypatch.setattr(sys, name, value, raising=False)
    monkeypatch.setattr(worker, "Worker", refuse)
    start()
    assert worker._running is None
