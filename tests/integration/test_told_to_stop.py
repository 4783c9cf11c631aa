# SPDX-License-Identifier: Apache-2.0
"""A training that is told to stop stops within seconds, wherever its monitor is, and keeps what was finished."""

import csv
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from _helpers.slow import nightly_but

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "_helpers" / "told_to_stop.py"
GRACE = 5
"""Seconds of computing."""
FINISHED = {"set-up": [], "sampling": ["0.0"], "measuring": ["0.0"]}


@pytest.mark.parametrize("place", nightly_but(FINISHED, "sampling"))
def test_sigterm_ends_a_training_in_five_seconds_and_keeps_what_is_finished(tmp_path, place):
    command = [sys.executable, str(SCRIPT), str(tmp_path), place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = iter(process.stdout.readline, "")
            assert any(line.strip() == "waiting" for line in said), process.stderr.read()
            process.send_signal(signal.SIGTERM)
            seconds, errors = process.communicate(timeout=30)  # the wait itself takes twice that
        finally:
            process.kill()
    assert "Traceback" not in errors
    assert float(seconds.splitlines()[-1]) < GRACE
    history = tmp_path / "genmonitor" / "history.csv"
    rows = list(csv.DictReader(history.read_text().splitlines())) if history.is_file() else []
    assert [row["epoch"] for row in rows] == FINISHED[place]
    assert ("evaluation of epoch 1 was left" in errors) == (place != "set-up")
