# SPDX-License-Identifier: Apache-2.0
from genmonitor.evaluation.verdicts import DropDetector

BAND = {"cluster_1": (0.9, 0.95, 1.0)}


def alerts(values, watch=None):
    watch = watch or DropDetector()
    return [watch.update({"cluster_1": value}, BAND) for value in values]


def test_two_checks_in_a_row_below_the_band_raise_one_alert():
    assert alerts([0.95, 0.8, 0.8, 0.8, 0.8]) == [[], [], ["cluster_1"], [], []]


def test_one_check_below_is_chance():
    assert alerts([0.95, 0.8, 0.95, 0.8, 0.95, 0.8]) == [[]] * 6


def test_what_never_reached_its_yardstick_cannot_fall_from_it():
    assert alerts([0.1, 0.2, 0.3, 0.1, 0.89]) == [[]] * 5


def test_the_lower_end_of_the_band_belongs_to_it_and_above_it_is_no_drop():
    assert alerts([0.9, 0.9, 1.0, 1.2, 0.9]) == [[]] * 5
    assert alerts([0.9, 0.899, 0.899])[-1] == ["cluster_1"]


def test_rounding_is_no_drop_from_exactly_one():
    watch, band = DropDetector(), {"constant": (1.0, 1.0, 1.0)}
    assert [watch.update({"constant": value}, band) for value in (1.0, 1 - 1e-8, 1 - 1e-8)] == [[], [], []]


def test_after_a_recovery_it_warns_again():
    assert alerts([0.95, 0.8, 0.8, 0.95, 0.8, 0.8])[-1] == ["cluster_1"]


def test_a_value_that_is_not_a_number_counts_as_below():
    assert alerts([0.95, float("nan"), float("nan")])[-1] == ["cluster_1"]


def test_each_region_is_watched_for_itself():
    watch, bands = DropDetector(), {"cluster_1": (0.9, 0.95, 1.0), "constant": (1.0, 1.0, 1.0)}
    checks = [{"cluster_1": 0.95, "constant": 1.0}] + 2 * [{"cluster_1": 0.95, "constant": 0.99}]
    assert [watch.update(check, bands) for check in checks] == [[], [], ["constant"]]


def test_a_watch_goes_on_from_its_state():
    first, second = DropDetector(), DropDetector()
    alerts([0.95, 0.8], first)
    second.reached, second.below = dict(first.reached), dict(first.below)
    assert alerts([0.8], second) == [["cluster_1"]]
