# SPDX-License-Identifier: Apache-2.0
import os
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from _helpers.processes import in_two_processes
from packaging.version import Version

from genmonitor.linalg import chunking

THREADS = os.environ.get("GENMONITOR_TEST_THREADS", "1")
"""One: tiny problems are slower on several, and several tests at once would wait for each other's threads. With more,
`make test-numerics` finds what depends on the order of a sum."""

os.environ["OMP_NUM_THREADS"] = THREADS  # of the processes that tests start too
chunking.PROCESSOR_TIMES = Path("nowhere")  # so the threads do not depend on what else the machine does

if Version(version("lightning")) < Version("2.6"):  # which the extra `examples` asks for
    collect_ignore_glob = ["examples/*", "integration/test_sweep.py"]


PAPERS = "examples/papers/"


def pytest_collection_modifyitems(items):
    """The slow tests of the papers' scripts, which change with the papers, are those of `make nightly`."""
    for item in items:
        if PAPERS in item.path.as_posix() and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(autouse=True, scope="session")
def threads_from_the_start():
    """Fixtures of a module come before those of a test."""
    torch.set_num_threads(int(THREADS))


@pytest.fixture(autouse=True)
def same_threads():
    """A test may have changed them."""
    torch.set_num_threads(int(THREADS))
    yield
    torch.set_num_threads(int(THREADS))


@pytest.fixture(scope="session")
def ranks_in_step(tmp_path_factory):
    """What each of two processes that hold a model together found."""
    from _helpers.two_ranks_in_step import everything

    return in_two_processes(everything, tmp_path_factory.mktemp("ranks"))
