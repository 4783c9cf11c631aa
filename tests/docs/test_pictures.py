# SPDX-License-Identifier: Apache-2.0
"""The pictures of "Read the curves" are what their script draws, and show what the page says of them."""

import subprocess
import sys

import pytest
from _helpers.pages import PAGES, ROOT
from PIL import Image

pytestmark = pytest.mark.skipif(not PAGES, reason="needs the repository: docs/ is not beside the tests")

CASES = ("good", "collapsed", "regional", "memorized")


def table(text):
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {row[0]: dict(zip(rows[0][1:], map(float, row[1:]), strict=True)) for row in rows[2:]}


def shows_what_the_page_says(found):
    assert found["good"]["smallest p of a cluster"] > 0.05 < found["memorized"]["smallest p of a cluster"]
    assert found["good"]["error of the image"] < 2 > found["memorized"]["error of the image"]
    for faulty in ("collapsed", "regional"):
        assert found[faulty]["smallest p of a cluster"] == 0.001
        assert found[faulty]["error of the image"] > 1.2
    assert found["collapsed"]["precision"] > 0.9 > 0.5 > found["collapsed"]["coverage"]
    assert found["memorized"]["distance to training"] == 0 < 0.9 < found["good"]["distance to training"]


def test_committed_table_says_what_the_page_says():
    found = table(PAGES["docs/pictures/table.md"])
    assert tuple(found) == CASES
    shows_what_the_page_says(found)


@pytest.mark.slow
@pytest.mark.nightly
def test_script_draws_them(tmp_path):
    subprocess.run([sys.executable, ROOT / "docs" / "pictures.py", tmp_path], check=True, capture_output=True)
    found = table((tmp_path / "table.md").read_text())
    assert tuple(found) == CASES
    shows_what_the_page_says(found)
    drawn = sorted(path.name for path in tmp_path.glob("*.png"))
    of_cases = [f"{case}-{kind}.png" for case in CASES for kind in ("curves", "diagnosis", "samples")]
    assert drawn == sorted([*of_cases, "class-3.png", "odd-samples.png"])
    for name in drawn:
        with Image.open(tmp_path / name) as new, Image.open(ROOT / "docs" / "pictures" / name) as committed:
            assert new.size == committed.size
