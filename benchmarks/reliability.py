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


@dataclass(frozen=True)
class Row:
    """Which tests a row of the table counts.

    Attributes:
        patterns: of test files, relative to `tests`; each must match at least one, wherever it lies.
        keyword: counts only the tests whose name has it, see pytest's -k.
    """

    patterns: tuple[str, ...]
    keyword: str = ""

    def files(self) -> list[Path]:
        """Return the files, relative to the repository.

        Raises:
            FileNotFoundError: if a pattern matches none.
        """
        out: list[Path] = []
        for pattern in self.patterns:
            found = sorted((ROOT / "tests").glob(pattern))
            if not found:
                raise FileNotFoundError(f"No test file matches tests/{pattern}. Say in {__file__} where it is now.")
            out += [path.relative_to(ROOT) for path in found]
        return out


ROWS = {
    "several processes": Row(
        (
            "**/test_several_processes.py",
            "**/test_split_by_sampler.py",
            "**/test_sync.py",
            "test_distributed.py",
            "metrics/test_agreement.py",
            "monitoring/test_agreement.py",
            "**/test_circumstances.py",
            "cli/test_processes.py",
        )
    ),
    "models spread over processes": Row(("**/test_sharded_models.py", "**/test_sharding.py", "**/test_lockstep.py")),
    "killed and resumed": Row(("**/test_crashes.py", "**/test_resume.py")),
    "training untouched": Row(
        (
            "**/test_untouched_matrix.py",
            "**/test_training_untouched.py",
            "**/test_isolation.py",
            "**/test_rng.py",
            "training_state/test_data.py",
            "training_state/test_proof.py",
        )
    ),
    "modules and Trainers of others": Row(("**/test_matrix.py",)),
    "faults injected": Row(("**/test_faults.py",)),
    "citizens of torchmetrics": Row(
        ("**/test_citizens.py", "**/test_collections.py", "**/test_ownership.py", "**/test_properties.py")
    ),
    "both namespaces of Lightning": Row(("callbacks/test_base.py", "loggers/test_*.py"), keyword="pytorch_lightning"),
    "wrong uses refused": Row(("**/test_bad_input.py", "**/test__validation.py", "**/test_configuration.py")),
    "averaged weights in every precision": Row(
        ("callbacks/test_weights.py", "**/test_stochastic_averaging.py"), keyword="averag"
    ),
    "containers that a sampler writes into": Row(
        ("**/test_isolation.py", "**/test_training_untouched.py"),
        keyword="comes_back or come_back or came_back or outlive or writes or cannot_be_copied or stays or a_file",
    ),
    "functions that work in place or reuse their memory": Row(
        ("evaluation/test_extra_metrics.py", "encoders/test_frozen.py", "**/test_reused_memory.py"),
        keyword="in_place or same_memory",
    ),
    "nothing to validate on": Row(("callbacks/test_base.py",), keyword="nothing_to_validate_on"),
    "terminals that take nothing, warnings as errors": Row(
        ("callbacks/test_base.py", "test__io.py"), keyword="takes_nothing or cannot_be_said or encoding or are_errors"
    ),
    "signals": Row(("cli/test_signals.py",)),
    "subclasses of tensors": Row(
        (
            "functional/test_every_function.py",
            "metrics/test_citizens.py",
            "evaluation/test_comparison.py",
            "images/test_image_set.py",
        ),
        keyword="subclass",
    ),
    "strategies": Row(
        ("callbacks/test_base.py", "callbacks/test_configuration.py"),
        keyword="strategy or fsdp or another_process or processes_of_the_training",
    ),
    "states and checkpoints that were edited": Row(
        ("monitoring/test_loop.py", "callbacks/test_*.py"), keyword="edited or refuses_to_go_on"
    ),
    "epochs without an evaluation": Row(("**/test_watchers.py",)),
    "told to stop": Row(("**/test_told_to_stop.py",)),
    "environment variables": Row(("cli/test_environment.py",)),
    "hostile text": Row(("**/test_hostile_text.py",)),
    "soaked": Row(("**/test_soak.py",)),
    "files and prompts": Row(("**/test_safety.py", "**/test__io.py")),
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


def run(row: Row) -> Outcome:
    """Run the tests of a row and read pytest's own report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "-o", "junit_family=xunit1"]
        command += ["-k", row.keyword] if row.keyword else []
        command += [str(path) for path in row.files()]
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
    for row in ROWS.values():
        row.files()  # not after minutes of other rows
    for name, row in ROWS.items():
        outcome = run(row)
        if not outcome.passed + outcome.failed:
            raise RuntimeError(f"No test ran for {name!r}. Say in {__file__} where they are now.")
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
