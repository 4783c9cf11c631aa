# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "examples" / "papers" / "scendi"))


@pytest.fixture(scope="session")
def space():
    """A space trained once for all of these tests."""
    from tiny_clip import train_tiny_clip

    return train_tiny_clip(300)


@pytest.fixture
def run(space, monkeypatch, capsys, tmp_path):
    """Run a script in the trained space; return what it printed and where its pictures are."""

    def run_script(script, *arguments):
        monkeypatch.setattr(script, "train_tiny_clip", lambda steps: space)
        monkeypatch.setattr(sys, "argv", [script.__file__, *arguments])
        script.main()
        return capsys.readouterr().out, tmp_path

    return run_script
