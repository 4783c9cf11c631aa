# SPDX-License-Identifier: Apache-2.0
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import matplotlib as mpl
import numpy as np
import pytest
import torch
from _helpers.logged import read_tensorboard
from _helpers.loggers import AnyLogger, WandbRun
from _helpers.modules import LIGHTNING_SAYS, digits, fit, loader
from lightning import Callback, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger

from genmonitor.callbacks import PixelClusterMonitor
from genmonitor.loggers import worker
from genmonitor.loggers.publisher import Publisher, finish_evaluations, finish_run
from genmonitor.loggers.worker import MAX_WAITING, Worker, start
from genmonitor.plotting.pixel_clusters import cluster_map
from genmonitor.report.figures import RenderedFigure

pytestmark = LIGHTNING_SAYS


@pytest.fixture(scope="module")
def beside():
    """A process that is ready, the same for all tests here."""
    started = Worker()
    deadline = time.monotonic() + 120
    while not started.ready and time.monotonic() < deadline:
        time.sleep(0.05)
    assert started.ready
    yield started
    started.close()


@pytest.fixture
def broken():
    """A process that has ended."""
    started = Worker()
    started._process.kill()
    yield started
    started.close()


class NotReadBack:
    """What pickle takes and does not give back."""

    def __reduce__(self):
        return int, ("not a number",)


def collect(into, result):
    into.append(result())


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
        assert worker.running() is None
    (process,) = processes
    assert process.returncode is not None


@pytest.mark.parametrize(("name", "value"), [("executable", None), ("executable", ""), ("frozen", True)])
def test_no_process_is_started_where_no_interpreter_takes_a_script(monkeypatch, name, value):
    monkeypatch.setattr(worker, "_started", False)
    monkeypatch.setattr(sys, name, value, raising=False)
    monkeypatch.setattr(worker, "Worker", refuse)
    start()
    assert worker.running() is None


SCRIPT = """
import math, os, signal, sys, time
from functools import partial

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as scripts do whose output goes to `head`
print("script runs", flush=True)  # not again in the worker, though no `if __name__ == "__main__"` guards it

from genmonitor.loggers import worker

worker.start()
running, found = worker.running(), []
while not running.ready:
    time.sleep(0.1)


def take(result):
    found.append(result())


for way in (sys.exit, os._exit):
    running.submit(way, partial(time.sleep, 1), take)
    running.submit("root", partial(math.sqrt, 4.0), take)
    time.sleep(0.3)
    child = os.fork()
    if not child:
        assert worker.running() is None and worker.drain() == 0
        way(7)
    print("fork ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    worker.drain()
print("drawn", found, flush=True)

running.submit("slow", partial(time.sleep, 1), take)
running.submit("root", partial(math.sqrt, 9.0), take)
try:
    os.killpg(0, signal.SIGINT)
    worker.drain()
except KeyboardInterrupt:
    worker.drain()
print("after Ctrl-C", found[-1], running.ready, flush=True)

running.submit("slow", partial(time.sleep, 60), take)
running.submit("long", partial(len, bytes(5_000_000)), take)
running._jobs.pop(0)  # nobody waits a minute for it here
time.sleep(0.3)
os.kill(running._process.pid, signal.SIGKILL)
worker.drain()
print("after a kill", found[-1], running.ready, running.lost, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="of POSIX")
def test_what_scripts_and_systems_do_to_a_training_with_a_worker(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-W", "error", tmp_path / "script.py"]
    ran = subprocess.run(command, capture_output=True, text=True, start_new_session=True, timeout=300, check=False)
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "script runs",
        *["fork ended with 7"] * 2,
        "drawn [None, 2.0, None, 2.0]",
        "after Ctrl-C 3.0 True",
        "after a kill 5000000 False True",
    ]
    assert ran.returncode == 0


TRAINING = """
import os, signal, sys, time
from functools import partial
from genmonitor.loggers import worker

worker.start()
while not worker.running().ready:
    time.sleep(0.1)
if not os.fork():
    time.sleep(60)  # a worker of a DataLoader that outlives the training
worker.running().submit(0, partial(time.sleep, 1), print)
print(worker.running()._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="of Linux")
def test_worker_ends_with_a_training_that_is_killed_though_a_fork_of_it_lives():
    training = subprocess.Popen([sys.executable, "-c", TRAINING], stdout=subprocess.PIPE, start_new_session=True)
    lives = os.pidfd_open(int(training.stdout.readline()))
    ended = select.select([lives], [], [], 120)[0]
    os.killpg(training.pid, signal.SIGKILL)
    training.communicate()
    os.close(lives)
    assert ended


# a publisher


@pytest.fixture
def running(beside, monkeypatch):
    monkeypatch.setattr(worker, "_running", beside)
    return beside


def publishes(folder, prefix="cms", loggers=()):
    publisher = Publisher("Name", prefix)
    publisher.start(folder, loggers, parallel=True)
    return publisher


def drawing(number=1):
    return partial(cluster_map, torch.tensor([[0, number], [2, 1]]))


def test_figures_drawn_later_are_rows_of_their_own_in_wandb(tmp_path, running):
    pytest.importorskip("wandb")
    run = WandbRun()
    publisher = publishes(tmp_path, loggers=[AnyLogger(run)])
    for step in (100, 200):
        publisher.notes.set_moment(step / 100, step)
        publisher._loggers.log_scalars({"cms/image": 0.9}, step)
        publisher._publish_figures({"first": drawing(1), "second": drawing(2)}, step, None)
        publisher.write_report(1)
        finish_evaluations([publisher])
        while running._jobs:
            run.log({"loss": 1.0, "trainer/global_step": (step := step + 1)})  # as the user's training does
            time.sleep(0.05)
            worker.deliver()
    rows = [row for row in run.rows if "loss" not in row]
    names = ("cms/image", "cms/first", "cms/second", "genmonitor/report")
    assert [(name, row.pop("trainer/global_step")) for row in rows for name in names if name in row] == [
        (name, step) for step in (100, 200) for name in names
    ]
    assert all(len(row) == 1 for row in rows)
    assert all(row.keys() == {"loss", "trainer/global_step"} for row in run.rows if "loss" in row)


def test_figure_that_pickle_refuses_is_drawn_here_and_those_after_it(tmp_path, running):
    publisher = publishes(tmp_path)
    refused = partial(drawing().func, [[0, 1], [2, 1]])
    refused.lock = threading.Lock()
    homeless = partial(lambda: drawing()())
    homeless.func.__module__ = None
    publisher._publish_figures({"refused": refused, "homeless": homeless, "after": drawing()}, 5, 1)
    assert publisher.latest.keys() == {"refused", "homeless"}
    running.drain()
    assert len(set(publisher.latest.values())) == 1
    assert len(publisher.latest) == 3


def test_figure_that_can_be_drawn_nowhere_is_said_and_stops_nothing(tmp_path, running):
    publisher = publishes(tmp_path)
    publisher._publish_figures({"lost": partial(cluster_map, NotReadBack()), "after": drawing()}, 5, 1)
    with pytest.warns(UserWarning, match="(?s)could not be shown or written.*not a number"):
        finish_run(publisher)
    assert publisher.latest.keys() == {"after"}


def test_figures_have_the_users_settings_of_matplotlib(tmp_path, running):
    publisher, plain = publishes(tmp_path), RenderedFigure.of(drawing())
    with mpl.rc_context({"font.family": "DejaVu Serif"}):
        here = RenderedFigure.of(drawing())
        publisher._publish_figures({"map": drawing()}, 5, 1)
    running.drain()
    assert publisher.latest["map"] == here.png != plain.png


def test_every_monitor_learns_where_the_page_is(tmp_path, running):
    publishers = [publishes(tmp_path, prefix) for prefix in ("cms", "diversity")]
    running.submit("first", partial(time.sleep, 0.3), partial(collect, []))
    for publisher in publishers:
        publisher.folder.path.mkdir(exist_ok=True)
        publisher.write_report(1)
    finish_evaluations(publishers)
    finish_run(publishers[0])
    assert [publisher.page for publisher in publishers] == [tmp_path / "genmonitor" / "report.html"] * 2


# a training


class Fails(Callback):
    """Ends a training before its time."""

    def __init__(self, error):
        self.error = error

    def on_train_epoch_end(self, trainer, module):
        if trainer.current_epoch == 2:
            raise self.error


def monitored(**settings):
    return PixelClusterMonitor(n_clusters=3, n_samples=60, n_cluster_images=200, verbose=False, **settings)


def fit_with(folder, *callbacks):
    """Train, and return what the weights are then, all figures and the steps of those in TensorBoard."""
    seed_everything(0)
    logger = TensorBoardLogger(folder, name=None, version="")
    _, module = fit(folder, *callbacks, val=loader(digits(300, 400)), max_epochs=4, logger=logger)
    files = {path.name: path.read_bytes() for path in (folder / "genmonitor").glob("*.png")}
    return module.state_dict(), files, [image.step for image in read_tensorboard(folder).Images("cms/samples")]


@pytest.mark.slow
def test_training_with_figures_drawn_beside_it_is_that_without(tmp_path, running, monkeypatch):
    here, beside = monitored(on_error="raise"), monitored()
    weights, files, steps = fit_with(tmp_path / "here", here)
    sent, submit = [], running.submit
    monkeypatch.setattr(running, "submit", lambda key, *rest, **how: (sent.append(key), submit(key, *rest, **how)))
    same_weights, same_files, same_steps = fit_with(tmp_path / "beside", beside)
    assert {key[0] for key in sent} == {"figure", "page", "finish"}
    assert all(torch.equal(weights[name], same_weights[name]) for name in weights)
    assert files == same_files
    assert files.keys() >= {"cms_curves.png", "cms_samples_epoch_0003_step_11.png"}
    assert steps == same_steps
    assert beside.publisher.latest["curves"] == files["cms_curves.png"]
    assert beside.publisher.page == tmp_path / "beside" / "genmonitor" / "report.html"
    assert beside.publisher.page.exists()


@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError("no more"), KeyboardInterrupt()], ids=["error", "ctrl-c"])
def test_figures_are_there_when_a_training_ends_before_its_time(tmp_path, running, error):
    with pytest.raises((RuntimeError, SystemExit)):
        fit_with(tmp_path, monitored(), Fails(error))
    written = {path.name for path in (tmp_path / "genmonitor").iterdir()}
    assert written >= {"cms_curves.png", "cms_samples_epoch_0002_step_8.png", "report.html"}
    assert len(read_tensorboard(tmp_path).Images("cms/curves")) >= 1


@pytest.mark.slow
def test_skipped_figures_are_said(tmp_path, running, monkeypatch):
    monkeypatch.setattr(running, "skipped", 2)
    with pytest.warns(UserWarning, match="PixelClusterMonitor: 2 figures were skipped"):
        fit_with(tmp_path, monitored())
    assert running.skipped == 0
