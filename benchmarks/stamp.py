# SPDX-License-Identifier: Apache-2.0
"""Which commit a table is of, and which machine."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def stamp() -> str:
    """Name the commit that is measured, with a plus where files other than tables differ from it."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], check=True, stdout=subprocess.PIPE, text=True, cwd=HERE).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "..", ":!*.md", ":!*.png")
        return f"commit {git('rev-parse', '--short=10', 'HEAD')}{'+' if changed else ''}"
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


def processor() -> str:
    """Name this machine's processor, by which tables tell machines apart."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.split(":")[1].strip() for line in lines if "model name" in line)
    return next(named, platform.processor() or platform.machine())
