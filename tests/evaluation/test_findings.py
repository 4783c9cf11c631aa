# SPDX-License-Identifier: Apache-2.0
import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genmonitor.evaluation.findings import ALERT_LEVEL, DegradationDetector, differs, p_values_of_change

NAN = float("nan")
FAR, NEAR = -9.0, -1.0


def degradations(scores, detector=None):
    detector = detector or DegradationDetector()
    return [detector.update({"cluster_1": score}, ["cluster_1"]) for score in scores]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        pytest.param([0.5, FAR, FAR, FAR, FAR], [2], id="two far below in a row, once"),
        pytest.param([0.5, FAR, 0.5, FAR, 0.5, FAR], [], id="one below is chance"),
        pytest.param([NEAR] * 6, [], id="a little worse is chance"),
        pytest.param([FAR, FAR, 0.5, FAR, FAR], [1, 4], id="again after a recovery"),
        pytest.param([-FAR] * 4, [], id="better is no regression"),
        pytest.param([NAN, FAR, NAN, FAR], [], id="nothing is known where it is not a number"),
    ],
)
def test_regression_detector_names_a_region_at(scores, expected):
    found = degradations(scores)
    assert [i for i, names in enumerate(found) if names] == expected
    assert all(found[i] == ["cluster_1"] for i in expected)


def test_regression_detector_wants_the_alert_level_of_all_regions_together():
    just = NormalDist().inv_cdf(ALERT_LEVEL * 0.9)
    alone, among_five = DegradationDetector(), DegradationDetector()
    assert [alone.update({"a": just}, "a") for _ in range(2)] == [[], ["a"]]
    assert [among_five.update({"a": just, **dict.fromkeys("bcde", 0.0)}, "abcde") for _ in range(2)] == [[], []]


def test_regression_detector_judges_each_region_by_itself():
    detector = DegradationDetector()
    names = ["cluster_1", "constant"]
    assert detector.update({"cluster_1": 0.1, "constant": FAR}, names) == []
    assert detector.update({"cluster_1": FAR, "constant": FAR}, names) == ["constant"]
    assert detector.update({"cluster_1": FAR, "constant": FAR}, names) == ["cluster_1"]


def test_regression_detector_is_silent_on_small_changes_however_sure():
    detector = DegradationDetector()
    assert [detector.update({"cluster_1": FAR}, []) for _ in range(3)] == [[], [], []]


def test_regression_detector_goes_on_from_its_state():
    first, second = DegradationDetector(), DegradationDetector()
    degradations([0.5, FAR], first)
    second.load_state_dict(first.state_dict())
    assert degradations([FAR], second) == [["cluster_1"]]


@given(st.lists(st.floats(-8, 8), min_size=1, max_size=6))
def test_p_values_of_change_are_holms(scores):
    named = {str(i): z for i, z in enumerate(scores)}
    found = p_values_of_change(named, worse=True)
    for level in (1e-4, 0.01, 0.05, 0.3):
        # step down: the smallest is rejected at level / n, the next at level / (n - 1), until one is not
        rejected = set()
        for rank, name in enumerate(sorted(named, key=named.get)):
            if NormalDist().cdf(named[name]) > level / (len(named) - rank):
                break
            rejected.add(name)
        assert {name for name, p in found.items() if p <= level} == rejected
    assert p_values_of_change({name: -z for name, z in named.items()}, worse=False) == found


def test_p_values_of_change_leave_out_what_is_unknown():
    found = p_values_of_change({"a": NAN, "b": -2.0}, worse=True)
    assert found == {"a": 1.0, "b": pytest.approx(0.02275, rel=1e-3)}


@pytest.mark.parametrize(("p", "expected"), [(0.05, True), (0.055, False), (math.nan, False)])
def test_differs_at_the_level(p, expected):
    assert differs(p) is expected
