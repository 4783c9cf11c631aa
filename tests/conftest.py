# SPDX-License-Identifier: Apache-2.0
import os
import sys

import pytest
import torch
from _helpers.processes import in_two_processes

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
    """The process that draws beside a training takes seconds to load; tests of it start it themselves."""
    if (background := sys.modules.get("genmonitor.loggers.background")) is not None:
        monkeypatch.setattr(background, "start", lambda: None)
        monkeypatch.setattr(background, "_running", None)  # a fixture of a module may have started it


@pytest.fixture(scope="session")
def ranks_in_step(tmp_path_factory):
    """What each of two processes that hold a model together found."""
    from _helpers.two_ranks_in_step import everything

    return in_two_processes(everything, tmp_path_factory.mktemp("ranks"))
