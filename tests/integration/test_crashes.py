# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed again and again, anywhere, end as one that nobody killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "_helpers" / "crashes.py"
KILLS = 10


def test_runs_killed_ten_times_end_as_one_undisturbed(tmp_path, record_property):
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["different"] == []
    assert sum(said["died"].values()) >= KILLS
    assert min(said["died"].values()) > 0, said["died"]
    assert said["files read"] > 50
    for name, value in said["died"].items():
        record_property(f"killed: {name}", value)
    record_property("killed: files read afterwards", said["files read"])
