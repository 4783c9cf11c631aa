# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from _helpers.evaluations import halves

from genmonitor.cli import main


@pytest.fixture
def files(tmp_path):
    """Two files of images: real ones, and generated ones whose right half is too dark."""
    real, fake = tmp_path / "real.npy", tmp_path / "fake.npz"
    np.save(real, halves(300, 1).numpy())
    np.savez(fake, images=halves(120, 2, dark=0.6).numpy())
    return [str(real), str(fake)]


@pytest.fixture
def genmonitor(capsys):
    """Run a command as a person types it; return the exit status, what it prints and what it complains of."""

    def run(*arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stopped:  # argparse's way
            status = stopped.code
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def terminal(monkeypatch):
    """Let standard output count as a terminal of 200 columns with all colors."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLORTERM": "truecolor", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
