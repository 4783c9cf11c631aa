# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of what must not hurt a run and counts what they went through.

python benchmarks/reliability.py
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = {
    "several processes": ["tests/callbacks/test_several_processes.py", "tests/metrics/test_sync.py"],
    "killed and resumed": ["tests/callbacks/test_crashes.py"],
    "training untouched": [
        "tests/callbacks/test_untouched_matrix.py",
        "tests/callbacks/test_training_untouched.py",
        "tests/callbacks/test_generators.py",
    ],
    "faults injected": ["tests/callbacks/test_faults.py"],
    "citizens of torchmetrics": [
        "tests/metrics/test_citizens.py",
        "tests/metrics/test_wrappers.py",
        "tests/metrics/test_properties.py",
    ],
    "both namespaces of Lightning": ["tests/callbacks/test_namespaces.py"],
    "wrong uses refused": [
        "tests/test_bad_input.py",
        "tests/test_checks.py",
        "tests/callbacks/test_configuration.py",
    ],
    "soaked": ["tests/callbacks/test_soak.py"],
    "files and prompts": ["tests/callbacks/test_safety.py", "tests/test_files.py"],
}


@dataclass
class Outcome:
    """What came of some test files."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    counted: Counter[str] = field(default_factory=Counter)
    """What the tests themselves counted, by name."""


def run(files: list[str]) -> Outcome:
    """Run test files and read pytest's own report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "-o", "junit_family=xunit1", *files]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
        suite = next(iter(ET.parse(report).getroot()))
    out = Outcome(seconds=float(suite.get("time", 0)))
    for case in suite.iter("testcase"):
        kinds = {child.tag for child in case}
        out.failed += bool(kinds & {"failure", "error"})
        out.skipped += "skipped" in kinds
        out.passed += not kinds & {"failure", "error", "skipped"}
        for said in case.iter("property"):
            out.counted[said.get("name", "")] += int(said.get("value", 0))
    return out


def main() -> None:
    rows, details, failed = [], [], 0
    for name, files in FILES.items():
        outcome = run(files)
        failed += outcome.failed
        rows.append(f"| {name} | {outcome.passed} | {outcome.failed} | {outcome.skipped} | {outcome.seconds:.0f} |")
        details += [f"| {what} | {count} |" for what, count in outcome.counted.items()]
        print(rows[-1], flush=True)
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "lightning", "torchmetrics"))
    page = f"""# What monitors are put through

`python benchmarks/reliability.py`, one thread, Python {platform.python_version()}, {packages}. Tests that need a GPU
are skipped without one.

| what | tests passed | failed | skipped | seconds |
| --- | --- | --- | --- | --- |
{chr(10).join(rows)}

What the tests counted:

| | count |
| --- | --- |
{chr(10).join(details)}
"""
    (ROOT / "benchmarks" / "reliability.md").write_text(page)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
