# SPDX-License-Identifier: Apache-2.0
"""The same numbers from one process and from several, and no process that waits for one which failed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from modules import LIGHTNING_SAYS
from several_processes import outcomes

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Plain. (this check failed|the yardstick)"),
]

SCRIPT = Path(__file__).with_name("several_processes.py")


def test_three_processes_measure_what_one_does_and_skip_together(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    expected = outcomes(tmp_path, processes=1)
    for rank in range(3):
        found = json.loads((tmp_path / f"rank_{rank}.json").read_text())
        assert found.keys() == expected.keys()
        for name in expected:
            epochs = [check["epoch"] for check in found[name]["history"]]
            assert epochs == ([0, 2] if "fails" in name else [0, 1, 2])
            for check, reference in zip(found[name]["history"], expected[name]["history"], strict=True):
                assert check == pytest.approx(reference | {"step": check["step"]}, rel=1e-6, abs=1e-6)
            assert found[name]["image"] == pytest.approx(expected[name]["image"], rel=1e-6)

        # sharing changes nothing: the same numbers to the last bit
        assert found["two share samples"] == found["well"]
        alone = found["well"]["history"]
        assert [check["image"] for check in found["the other"]["history"]] != [check["image"] for check in alone]

    said = done.stdout + done.stderr
    assert said.count("RuntimeError: no samples today") == said.count("RuntimeError: no maps today") == 1
    assert said.count("Plain: this check failed on process 2 and is skipped") == 2
    assert said.count("Where the generator is wrong") == len(expected)  # one table a fit, not one a process
