# SPDX-License-Identifier: Apache-2.0
"""What scripts and systems do to a training with a worker: signals, forks, a dying terminal."""

import os
import select
import signal
import subprocess
import sys

import pytest

SCRIPT = """
import math, os, signal, sys, time
from functools import partial

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as scripts do whose output goes to `head`
print("script runs", flush=True)  # not again in the worker, though no `if __name__ == "__main__"` guards it

from genmonitor.loggers import worker

worker.start()
running, found = worker._running, []
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
        assert worker._running is None and worker.drain() == 0
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

idle = worker.Worker()
while not idle.ready:
    time.sleep(0.1)
os.kill(idle._process.pid, signal.SIGKILL)
idle._process.wait()
idle.submit("root", partial(math.sqrt, 16.0), take)  # written to nobody
idle.drain()
print("after a kill while it waits", found[-1], idle.lost, flush=True)
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
        "after a kill while it waits 4.0 True",
    ]
    assert ran.returncode == 0


TRAINING = """
import os, signal, sys, time
from functools import partial
from genmonitor.loggers import worker

worker.start()
while not worker._running.ready:
    time.sleep(0.1)
if not os.fork():
    time.sleep(60)  # a worker of a DataLoader that outlives the training
worker._running.submit(0, partial(time.sleep, 1), print)
print(worker._running._process.pid, flush=True)
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
