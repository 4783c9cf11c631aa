# SPDX-License-Identifier: Apache-2.0
"""Seconds and memory in docs/ are those of the committed tables in benchmarks/."""

import re

import pytest
from _helpers.pages import PAGES, ROOT

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="needs the repository: README.md and docs/ are not beside the tests"),
]


COSTS = {
    "an evaluation of the DCGAN on digits, sampling and all": ("overhead", "DCGAN digits", "whole evaluation s"),
    "an evaluation of the DDPM on digits, sampling and all": ("overhead", "DDPM digits", "whole evaluation s"),
    "the clusters of 64×64×3": ("cka", "clusters of 64x64x3", "seconds"),
    "the clusters of 256×256×3": ("cka", "clusters of 256x256x3 in 4x4 patches", "seconds"),
    "CKA of 28×28×1, 1000 images": ("cka", "full batch 28x28x1", "seconds"),
    "CMS of 64×64×3": ("cms", "image and 5 clusters", "seconds"),
    "Vendi, cosine, 50,000": ("entropy", "Vendi 50000 against score dual", "seconds"),
    "Scendi, 2 × 500": ("entropy", "Scendi 5000 by 2x500 frequencies", "seconds"),
    "PromptSplit, exact, 10,000": ("promptsplit", "exact 10000", "seconds"),
    "PromptSplit, 1,000 frequency pairs": ("promptsplit", "features 30000 1000", "seconds"),
    "PRDC, 5000": ("two_sample", "PRDC 5000", "seconds"),
    "MMD, 5000": ("two_sample", "MMD 5000", "seconds"),
}
"""The row of a committed table that each cost is taken from."""


def tables(name):
    """Return the rows of all tables of a benchmark, by their first cell."""
    rows, header = {}, []
    for line in (ROOT / "benchmarks" / f"{name}.md").read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            header = []
        elif not header:
            header = [cell.strip() for cell in line.split("|")[1:-1]]
        else:
            row = [cell.strip() for cell in line.split("|")[1:-1]]
            rows[row[0]] = dict(zip(header, row, strict=True))
    return rows


def costs():
    """Return what is said to cost what: what, seconds and GiB."""
    page = PAGES.get("docs/cost.md", "")
    block = re.search(r"^\| what \| seconds \|.*peak GiB \|\n.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block[1].splitlines()] if block else []
    return [(row[0], float(row[1]), float(row[-1])) for row in rows]


@pytest.mark.parametrize(("what", "seconds", "memory"), costs())
def test_cost_is_that_of_a_committed_table(what, seconds, memory):
    (start,) = [start for start in COSTS if what.startswith(start)]
    name, case, column = COSTS[start]
    measured = tables(name)[case]
    assert seconds == pytest.approx(float(measured[column]), rel=0.06)
    assert memory == pytest.approx(float(measured["peak GiB"]), abs=0.06)


def test_every_cost_is_shown():
    assert len(costs()) == len(COSTS)
    assert all(any(what.startswith(start) for what, *_ in costs()) for start in COSTS)


MEASURED = [
    (page, *found)
    for page, text in PAGES.items()
    for found in re.findall(r"\| measured \| ([\d.]+) s: `([^`]+)` in .*benchmarks/(\w+)\.md\)", text)
]


@pytest.mark.parametrize(("page", "seconds", "case", "name"), MEASURED)
def test_seconds_of_a_metric_are_those_of_a_committed_table(page, seconds, case, name):
    assert tables(name)[case]["seconds"] == seconds
