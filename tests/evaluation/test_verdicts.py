# SPDX-License-Identifier: Apache-2.0
import pytest

from genmonitor.evaluation.verdicts import DropDetector

BAND = {"cluster_1": (0.9, 0.95, 1.0)}
NAN = float("nan")


def regressions(values, detector=None):
    detector = detector or DropDetector()
    return [detector.update({"cluster_1": value}, BAND) for value in values]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([0.95, 0.8, 0.8, 0.8, 0.8], [2], id="two below in a row, once"),
        pytest.param([0.95, 0.8, 0.95, 0.8, 0.95, 0.8], [], id="one below is chance"),
        pytest.param([0.1, 0.2, 0.3, 0.1, 0.89], [], id="it never reached the baseline"),
        pytest.param([0.9, 0.9, 1.0, 1.2, 0.9], [], id="the lower end belongs to the band"),
        pytest.param([0.9, 0.899, 0.899], [2], id="just below the lower end"),
        pytest.param([0.95, 0.8, 0.8, 0.95, 0.8, 0.8], [2, 5], id="again after a recovery"),
        pytest.param([0.95, NAN, NAN], [2], id="what is not a number is below"),
    ],
)
def test_drop_detector_names_a_region_at(values, expected):
    found = regressions(values)
    assert [i for i, names in enumerate(found) if names] == expected
    assert all(found[i] == ["cluster_1"] for i in expected)


def test_drop_detector_does_not_take_rounding_for_a_drop_from_1():
    detector, band = DropDetector(), {"constant": (1.0, 1.0, 1.0)}
    assert [detector.update({"constant": value}, band) for value in (1.0, 1 - 1e-8, 1 - 1e-8)] == [[], [], []]


def test_drop_detector_judges_each_region_by_itself():
    detector, bands = DropDetector(), {"cluster_1": (0.9, 0.95, 1.0), "constant": (1.0, 1.0, 1.0)}
    evaluations = [{"cluster_1": 0.95, "constant": 1.0}] + 2 * [{"cluster_1": 0.95, "constant": 0.99}]
    assert [detector.update(values, bands) for values in evaluations] == [[], [], ["constant"]]


def test_drop_detector_goes_on_from_its_state():
    first, second = DropDetector(), DropDetector()
    regressions([0.95, 0.8], first)
    second.load_state_dict(first.state_dict())
    assert regressions([0.8], second) == [["cluster_1"]]
