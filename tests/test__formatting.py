# SPDX-License-Identifier: Apache-2.0
import math

from genmonitor._formatting import as_sentence, format_cms, reaches_baseline


def test_format_cms_shows_two_digits_of_the_distance_to_one():
    assert [format_cms(x) for x in (0.5, 0.99964, 0.9999641, 1.0)] == ["0.5000", "0.99964", "0.999964", "1"]


def test_reaches_baseline_leaves_rounding_out():
    assert reaches_baseline(1 - 1e-8, 1.0)
    assert not reaches_baseline(0.96, 0.97)
    assert not reaches_baseline(math.nan, 0.5)


def test_as_sentence_keeps_names():
    assert as_sentence("only 7 images") == "Only 7 images."
    assert as_sentence("cluster_2 regressed.") == "cluster_2 regressed."
