# SPDX-License-Identifier: Apache-2.0
"""Scripts of examples/, run by their commands."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(command: str, out: Path) -> str:
    """Return what a command prints; OUT in it is a folder."""
    words = command.replace("OUT", str(out)).split()
    done = subprocess.run([sys.executable, *words], cwd=EXAMPLES, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout
