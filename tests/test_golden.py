# SPDX-License-Identifier: Apache-2.0
"""The golden numbers of the tests are what the formulas give, computed by a script that does not know genmonitor."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from _helpers.make_golden import GOLDEN, differences, written

SCRIPT = Path(__file__).parent / "_helpers" / "make_golden.py"


@pytest.mark.slow
def test_golden_numbers_are_what_the_formulas_give():
    code = "import sys, make_golden; print(*make_golden.check(), 'genmonitor' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], cwd=SCRIPT.parent, check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "False"


def test_numbers_are_read_with_all_their_digits():
    assert written("golden")["CMS"]["image"] == Decimal("0.981355100")
    assert written("joint_spectra")["BOTTOM"][0].as_tuple().exponent == -8
    assert all(written(module) for module in GOLDEN)


@pytest.mark.parametrize(
    ("computed", "stands", "differing"),
    [
        (0.1250000001, Decimal("0.125"), []),
        (0.1281, Decimal("0.125"), ["X"]),
        ([1, 2], [Decimal(1), Decimal(2)], []),
        ([1, 2], [Decimal(1)], ["X"]),
        ([1.0, float("nan")], [Decimal("1.0"), Decimal("2.0")], ["X[1]"]),
        ({"a": 1.0, "b": 2.0}, {"a": Decimal("1.0"), "b": Decimal("2.5")}, ["X['b']"]),
        ({"a": 1.0}, {"b": Decimal("1.0")}, ["X"]),
        (["0123"], ["0124"], ["X[0]"]),
        (1.0, None, ["X"]),
    ],
)
def test_a_number_that_differs_is_named(computed, stands, differing):
    assert [line.split(" is ")[0] for line in differences("X", computed, stands)] == differing
