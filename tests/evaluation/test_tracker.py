# SPDX-License-Identifier: Apache-2.0
import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genmonitor.evaluation.tracker import ALERT_LEVEL, Tracker, p_values_of_change
from genmonitor.findings.finding import differs

NAN = float("nan")
FAR, NEAR = -9.0, -1.0


class Plain(Tracker):
    """Tracks values of which all are far."""

    quantity, better = "distance", "low"
    allowed = None

    def far(self, values):
        return values if self.allowed is None else self.allowed


def update(tracker, scores, value=2.0):
    """Take in scores; return the names that deserve an alert."""
    return sorted(x.name for x in tracker.track(dict.fromkeys(scores, value), scores, 0.0))


def tracker_of(*names):
    tracker = Plain()
    update(tracker, dict.fromkeys(names, NAN), value=1.0)
    return tracker


def degradations(scores, tracker=None):
    tracker = tracker or tracker_of("cluster_1")
    return [update(tracker, {"cluster_1": score}) for score in scores]


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
def test_tracker_names_a_region_at(scores, expected):
    found = degradations(scores)
    assert [i for i, names in enumerate(found) if names] == expected
    assert all(found[i] == ["cluster_1"] for i in expected)


def test_tracker_wants_the_alert_level_of_all_regions_together():
    just = NormalDist().inv_cdf(ALERT_LEVEL * 0.9)
    alone, among_five = tracker_of("a"), tracker_of(*"abcde")
    assert [update(alone, {"a": just}) for _ in range(2)] == [[], ["a"]]
    assert [update(among_five, {"a": just, **dict.fromkeys("bcde", 0.0)}) for _ in range(2)] == [[], []]


def test_tracker_judges_each_region_by_itself():
    tracker = tracker_of("cluster_1", "constant")
    assert update(tracker, {"cluster_1": 0.1, "constant": FAR}) == []
    assert update(tracker, {"cluster_1": FAR, "constant": FAR}) == ["constant"]
    assert update(tracker, {"cluster_1": FAR, "constant": FAR}) == ["cluster_1"]


def test_tracker_is_silent_on_small_changes_however_sure():
    tracker = tracker_of("cluster_1")
    tracker.allowed = []
    assert [update(tracker, {"cluster_1": FAR}) for _ in range(3)] == [[], [], []]


def test_tracker_goes_on_from_its_state():
    first, second = tracker_of("cluster_1"), Plain()
    degradations([0.5, FAR], first)
    second.load_state_dict(first.state_dict())
    assert degradations([FAR], second) == [["cluster_1"]]


@given(st.lists(st.floats(-8, 8), min_size=1, max_size=6))
def test_p_values_of_change_are_holms(scores):
    named = {str(i): z for i, z in enumerate(scores)}
    found = p_values_of_change(named)
    for level in (1e-4, 0.01, 0.05, 0.3):
        # step down: the smallest is rejected at level / n, the next at level / (n - 1), until one is not
        rejected = set()
        for rank, name in enumerate(sorted(named, key=named.get)):
            if NormalDist().cdf(named[name]) > level / (len(named) - rank):
                break
            rejected.add(name)
        assert {name for name, p in found.items() if p <= level} == rejected


def test_p_values_of_change_leave_out_what_is_unknown():
    found = p_values_of_change({"a": NAN, "b": -2.0})
    assert found == {"a": 1.0, "b": pytest.approx(0.02275, rel=1e-3)}


@pytest.mark.parametrize(("p", "expected"), [(0.05, True), (0.055, False), (math.nan, False)])
def test_differs_at_the_level(p, expected):
    assert differs(p) is expected
