# SPDX-License-Identifier: Apache-2.0
"""The examples are scripts that import each other by name, so their folder has to be on the path."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture(autouse=True)
def no_workers(monkeypatch):
    """Load in this process on any machine: starting workers takes longer than the tests."""
    monkeypatch.setattr("data._workers", lambda: {"num_workers": 0})
