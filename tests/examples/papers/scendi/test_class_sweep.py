# SPDX-License-Identifier: Apache-2.0
"""Classes that prompts name raise Vendi, recall and coverage, but hardly Scendi."""

import class_sweep
import pytest
from class_sweep import subtract, sweep

pytestmark = pytest.mark.slow


def rise(rows, name):
    values = [row[name] for row in rows]
    return values[2] / values[0] - 1


@pytest.mark.parametrize("attribute", ["shape", "color"])
def test_only_classes_that_prompts_do_not_name_raise_scendi(space, attribute):
    rows = sweep(space, attribute, n=250, num_features=300)
    for name in ("vendi", "recall", "coverage"):
        assert rise(rows, name) > 0.4
    for score, most in (("cosine", 0.1), ("scendi", 0.45), ("conditional", 0.25)):
        assert rise(rows, f"{score}_named") < most
        assert rise(rows, f"{score}_unnamed") > 1.6 * rise(rows, f"{score}_named")
        assert rows[0][f"{score}_named"] == pytest.approx(rows[0][f"{score}_unnamed"], rel=0.05)


def test_plain_subtraction_fails_where_least_squares_works(space):
    rows = subtract(space, "shape", n=600)
    assert abs(rise(rows, "left_by_gamma")) < 0.08
    assert rise(rows, "left_by_identity") > 0.8 * rise(rows, "vendi") > 0.2


def test_script_prints_both_tables_and_draws(run, tmp_path):
    said, _ = run(class_sweep, "-n", "60", "--num-features", "20", "--out", str(tmp_path))
    assert said.count("3 shapes") == said.count("3 colors") == 2
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
