# SPDX-License-Identifier: Apache-2.0
import pytest

from genmonitor.evaluation.regions.closer import closer_set, closer_table, which_is_closer
from genmonitor.findings.tables import aligned

NAMES = ("new", "old")


def differences_of(**z):
    """Return differences of so many standard errors, with about the p-value that belongs to them."""
    return {
        name: {"difference": 0.01 * value, "standard_error": 0.01, "p_value_adjusted": 0.5 if abs(value) < 2 else 0.004}
        for name, value in {"image": 0.0, **z}.items()
    }


@pytest.mark.parametrize(
    ("z", "said"),
    [
        (
            {"cluster_1": 0.1, "cluster_2": 4, "constant": 0},
            "new is closer to the real images than old in cluster_2 (p = 0.004); no evidence of a difference in the "
            "others.",
        ),
        (
            {"cluster_1": -3, "cluster_2": -4, "constant": 0},
            "old is closer to the real images than new in cluster_2 (p = 0.004), cluster_1 (p = 0.004); "
            "no evidence of a difference in the other.",
        ),
        (
            {"cluster_1": -3, "cluster_2": 4},
            "new is closer to the real images than old in cluster_2 (p = 0.004); old is closer in cluster_1 (p = "
            "0.004).",
        ),
        (
            {"image": -3, "cluster_1": -3, "cluster_2": 4, "constant": 0},
            "old is closer to the real images than new (p = 0.004), in cluster_1 (p = 0.004); new is closer in "
            "cluster_2 (p = 0.004); no evidence of a difference in the other.",
        ),
        (
            {"image": -3, "cluster_1": 4},
            "old is closer to the real images than new (p = 0.004); new is closer in cluster_1 (p = 0.004).",
        ),
        (
            {"cluster_1": 3, "cluster_2": 4},
            "new is closer to the real images than old in cluster_2 (p = 0.004), cluster_1 (p = 0.004).",
        ),
        ({"cluster_1": 3}, "new is closer to the real images than old in cluster_1 (p = 0.004)."),
        (
            {"cluster_1": 1, "cluster_2": -1},
            "No evidence that new or old is closer to the real images in any region (smallest p = 0.5).",
        ),
        (
            {"image": -3, "cluster_1": 1},
            "old is closer to the real images than new (p = 0.004); no evidence of a difference in the other.",
        ),
    ],
)
def test_finding_of_two_sets(z, said):
    assert str(which_is_closer(differences_of(**z), NAMES)) == said


def test_the_closer_set_is_the_one_that_the_sign_says():
    found = differences_of(a=4, b=-4, c=1)
    assert [closer_set(found[name]) for name in "abc"] == [0, 1, None]


def test_table_of_two_sets_has_the_image_first_and_then_the_surest():
    values = [{f"p_{name}": 0.005 * k for name in ("image", "1", "2")} for k in (1, 100)]
    sizes = {"image": 9, "cluster_1": 4, "cluster_2": 5}
    table = closer_table(differences_of(cluster_1=0.5, cluster_2=-4), values, NAMES, sizes)
    differs, same = "differs (p = 0.005)", "no evidence of a difference (p = 0.5)"
    assert table.rows == [
        ["image", 9, differs, same, "0", "0.01", "0.5", "neither"],
        ["cluster_2", 5, differs, same, "-0.04", "0.01", "0.004", "old"],
        ["cluster_1", 4, differs, same, "0.005", "0.01", "0.5", "neither"],
    ]
    lines = aligned(table).splitlines()
    assert (
        len({line.index(word) for line, word in zip(lines, ("closer", "neither", "old", "neither"), strict=True)}) == 1
    )


def test_differences_that_float32_cannot_tell_from_nothing_are_nothing():
    tests = {"image": {"difference": -3e-11, "standard_error": 1e-4, "p_value_adjusted": 1.0}}
    (row,) = closer_table(tests, [{"p_image": 1.0}] * 2, NAMES, {"image": 1}).rows
    assert row[4:] == ["0", "0.0001", "1", "neither"]
