# SPDX-License-Identifier: Apache-2.0
"""Each script of benchmarks/ still runs, and what it times is right; what it says of speed is no matter for a test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
pytestmark = [
    pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs the repository: benchmarks/ is not beside the tests"),
    pytest.mark.slow,
]


def printed(script: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize(
    ("script", "case", "error"),
    [
        ("cka", "full_batch_28x28x1", 1e-6),
        ("cms", "image_and_5_clusters", 1e-8),
        ("entropy", "Vendi_1000_against_score_dual", 1e-4),
        ("promptsplit", "exact_1000", 1e-6),
        ("two_sample", "PRDC_1000", 1e-6),
    ],
)
def test_a_case(script, case, error):
    row = json.loads(printed(BENCHMARKS / f"{script}.py", "--case", case, "--once").splitlines()[-1])
    assert float(row["seconds"]) > 0
    assert float(row["error"]) < error
    assert any(column.startswith("× ") for column in row)


def test_a_check_in_a_real_run():
    row = json.loads(printed(BENCHMARKS / "overhead.py", "--case", "DCGAN_digits", "--once").splitlines()[-1])
    assert all(float(row[part]) > 0 for part in ("epoch s", "sampling s", "measuring s", "figures s"))


def test_a_point_of_the_growth():
    point = json.loads(printed(BENCHMARKS / "growth.py", "--point", "0", "1000"))
    assert point["seconds"] > 0
    assert point["state"] > 0


def test_a_table(tmp_path):
    """Each case has a row in a process of its own, and the columns are those of all of them."""
    script = tmp_path / "three.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from harness import run\n"
        "def first_of_all(): return {'n': 1, 'seconds': 2.0}\n"
        "def second(): return {'n': 3, 'error': '4e-05'}\n"
        "def minutes_long(): return {'n': 5}\n"
        "run(__file__, [first_of_all, second], 'A title', [minutes_long], 'A legend.')\n"
    )
    text = printed(script, "--long", "--once")
    assert script.with_suffix(".md").read_text().strip() == text.strip()
    assert text.startswith("# A title\n\n`python benchmarks/three.py --long --once` on ")
    header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    assert header == ["case", "n", "seconds", "peak GiB", "error"]
    assert [row[:3] + row[4:] for row in rows] == [
        ["first of all", "1", "2.0", ""],
        ["second", "3", "", "4e-05"],
        ["minutes long", "5", "", ""],
    ]
    assert all(0 < float(row[3]) < 10 for row in rows)
