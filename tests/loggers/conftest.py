# SPDX-License-Identifier: Apache-2.0
import sys
import time
from pathlib import Path

import pytest

from genmonitor.loggers.worker import Worker

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture(scope="module")
def beside():
    """A process that is ready, the same for all tests of a module."""
    started = Worker()
    deadline = time.monotonic() + 120
    while not started.ready and time.monotonic() < deadline:
        time.sleep(0.05)
    assert started.ready
    yield started
    started.close()
