# SPDX-License-Identifier: Apache-2.0
import os
import sys

import pytest
import torch

# of the processes that tests start too: with several tests at once their threads would wait for each other
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True, scope="session")
def one_thread_from_the_start():
    """Fixtures of a module come before those of a test."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny problems are slower on several threads, and the order of a sum must not depend on the machine."""
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def figures_in_this_process(monkeypatch):
    """The worker process takes seconds to load; tests of it start it themselves."""
    if (worker := sys.modules.get("genmonitor.loggers.worker")) is not None:
        monkeypatch.setattr(worker, "start", lambda: None)
        monkeypatch.setattr(worker, "_running", None)  # a fixture of a module may have started it
