# SPDX-License-Identifier: Apache-2.0
"""Commands that are ended by Ctrl-C, as at a terminal, or by SIGTERM, as Slurm and docker do."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from _helpers.modules import LIGHTNING_SAYS
from _helpers.replayed import Digits
from _helpers.swept import new, train

pytestmark = LIGHTNING_SAYS
SETUP = """
import time
from pathlib import Path
from _helpers.modules import Linear
from _helpers.replayed import Digits
from _helpers.swept import new
from genmonitor.callbacks import PixelClusterMonitor

class Slow(Linear):
    def sample(self, n):
        Path({started!r}).touch()
        time.sleep(900)

def build():
    return new(Slow), Digits(), PixelClusterMonitor(n_clusters=2, n_samples=20)
"""


@pytest.fixture
def start():
    """Return a function that starts a command, which is killed at the end if it still runs then."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # under nohup it is ignored, in children too
    with contextlib.ExitStack() as started:

        def run(*words, variables=None, **options):
            words = [sys.executable, "-m", "genmonitor", *map(str, words)]
            variables = environment | (variables or {})
            process = subprocess.Popen(words, env=variables, start_new_session=True, **pipes, **options)
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield run
    signal.signal(signal.SIGINT, before)


def wait_for(ready, process):
    end = time.monotonic() + 240
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGTERM, 143, "terminated by SIGTERM"), (signal.SIGINT, 130, "interrupted")],
    ids=["SIGTERM", "SIGINT"],
)
def test_a_command_that_is_ended_says_so_and_leaves_nothing(tmp_path, start, number, status, word):
    os.mkfifo(tmp_path / "x.npy")
    writers = []

    def is_read():
        with contextlib.suppress(OSError):  # nobody reads it yet
            writers.append(os.open(tmp_path / "x.npy", os.O_WRONLY | os.O_NONBLOCK))
        return writers

    process = start("diversity", "x.npy", "--out", "out", cwd=tmp_path)
    wait_for(is_read, process)  # it then waits for content
    process.send_signal(number)
    out, complaint = process.communicate(timeout=60)
    os.close(*writers)
    assert (process.returncode, out) == (status, "")
    assert complaint == f"reading …\ngenmonitor diversity: {word}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_process_that_waits_for_others_hears_sigterm(start, rank):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launched = {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    process = start("diversity", "x.npy", "--distributed", variables=launched)
    assert process.stderr.readline() == "genmonitor: waiting for 2 processes\n"
    process.send_signal(signal.SIGTERM)
    _, complaint = process.communicate(timeout=30)  # of two minutes that it would wait
    assert process.returncode == 143
    assert complaint.endswith("genmonitor diversity: terminated by SIGTERM\n")


@pytest.mark.slow
def test_a_sweep_that_is_terminated_before_its_first_checkpoint_says_so(tmp_path, start):
    train(tmp_path / "run", new(), Digits())
    (tmp_path / "slow_setup.py").write_text(SETUP.format(started=str(tmp_path / "started")))
    setup = f"{tmp_path / 'slow_setup.py'}:build"
    process = start("sweep", tmp_path / "run", "--setup", setup, "--device", "cpu")
    wait_for((tmp_path / "started").exists, process)
    process.send_signal(signal.SIGTERM)
    out, complaint = process.communicate(timeout=300)  # sooner than a sample is drawn
    assert (process.returncode, out) == (143, "")
    last = complaint.splitlines()[-1]
    assert last == (
        "genmonitor sweep: terminated by SIGTERM. Finished evaluations are kept: run the same command again to continue"
    )
    assert "has none" not in complaint
    assert ended(process.pid)


def ended(group):
    """Whether all processes of a group are gone within moments; Python's own tracker is the last one."""
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
