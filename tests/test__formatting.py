# SPDX-License-Identifier: Apache-2.0
import pytest

from genmonitor._formatting import as_sentence, format_cms, format_p, format_ratio, significant


def test_format_cms_shows_two_digits_of_the_distance_to_one():
    assert [format_cms(x) for x in (0.5, 0.99964, 0.9999641, 1.0)] == ["0.5000", "0.99964", "0.999964", "1"]


def test_as_sentence_keeps_names():
    assert as_sentence("only 7 images") == "Only 7 images."
    assert as_sentence("cluster_2 got worse.") == "cluster_2 got worse."


def test_format_ratio_has_two_digits():
    assert [format_ratio(x) for x in (0.04, 1.04, 9.96, 12.3, 215.2)] == ["0.0 ×", "1.0 ×", "10 ×", "12 ×", "215 ×"]


@pytest.mark.parametrize(("p", "expected"), [(0.005, "p = 0.005"), (1.0, "p = 1"), (1e-20, "p < 0.0001")])
def test_format_p(p, expected):
    assert format_p(p) == expected


NUMBERS = {
    0.0: "0",
    3.21e-8: "0.000000032",
    -2.5e-5: "-0.000025",
    0.031: "0.031",
    12.34: "12",
    99.96: "100",
    1.2e5: "120000",
}


@pytest.mark.parametrize(("value", "expected"), NUMBERS.items())
def test_sizes_are_ordinary_numbers(value, expected):
    assert significant(value) == expected


def test_sizes_out_of_all_proportion_have_an_exponent():
    assert (significant(1.5e-12), significant(3e30)) == ("1.5e-12", "3e+30")
