# SPDX-License-Identifier: Apache-2.0
"""The golden numbers of the tests are what the formulas give, computed by a script that does not know genmonitor."""

import subprocess
import sys
from pathlib import Path

import pytest
from _helpers.make_golden import same, written

SCRIPT = Path(__file__).parent / "_helpers" / "make_golden.py"


@pytest.mark.slow
@pytest.mark.nightly
def test_golden_numbers_are_what_the_formulas_give():
    code = "import sys, make_golden; print(*make_golden.check(), 'genmonitor' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], cwd=SCRIPT.parent, check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "False"


def test_a_number_that_differs_is_found():
    cms = written("golden")["CMS"]
    assert same(dict(cms), cms)
    assert not same(cms | {"image": cms["image"] + 1e-7}, cms)
