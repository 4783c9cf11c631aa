# SPDX-License-Identifier: Apache-2.0
"""One dataset that samplers split into training and validation, on two processes: the images of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _helpers.modules import LIGHTNING_SAYS
from _helpers.split_by_sampler import outcomes

pytestmark = [*LIGHTNING_SAYS, pytest.mark.slow]
SCRIPT = Path(__file__).parents[1] / "_helpers" / "split_by_sampler.py"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What one process finds, and what each of two does."""
    folder = tmp_path_factory.mktemp("two")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), str(folder), "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in range(2)]
    return json.loads(json.dumps(outcomes(tmp_path_factory.mktemp("one"), processes=1))), ranks


def test_two_processes_see_the_images_of_one(both):
    alone, ranks = both
    assert ranks[0]["images"] == ranks[1]["images"] == alone["images"]
    assert sum(rank["held"] for rank in ranks) == alone["held"] == len(set(alone["images"])) == 101


def test_two_processes_find_the_values_of_one(both, record_property):
    alone, ranks = both
    for rank in ranks:
        assert rank["clusters"] == alone["clusters"]
        assert len(rank["history"]) == len(alone["history"]) == 2
        for record, expected in zip(rank["history"], alone["history"], strict=True):
            assert record == pytest.approx(expected | {"step": record["step"]}, rel=1e-6, abs=1e-6)
    record_property("several processes: runs compared with one process", 1)
