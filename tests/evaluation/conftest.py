# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest
from _helpers.processes import in_two_processes

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture(scope="session")
def ranks_in_step(tmp_path_factory):
    """What each of two processes that hold a model together found."""
    from _helpers.two_ranks_in_step import everything

    return in_two_processes(everything, tmp_path_factory.mktemp("ranks"))
