# SPDX-License-Identifier: Apache-2.0
"""What an area's numbers are said to be: proportions or faults."""

import pytest

from genmonitor.functional.diagnosis.area import CLEAR, _rather_proportions


@pytest.mark.parametrize(
    ("share", "of_faults", "distance", "expected"),
    [
        pytest.param(0.88, 0.56, 955.0, False, id="all too dark: weights take the darkest, which are not dark enough"),
        pytest.param(0.97, 0.1, 30.0, True, id="weighted images are right"),
        pytest.param(0.7, 0.1, 500.0, False, id="weights imitate a part of a fault that no model describes"),
        pytest.param(0.86, 0.1, 500.0, True, id="classes are missing, and something else is wrong"),
        pytest.param(0.95, 0.9, 2 * CLEAR, False, id="a fault explains as much"),
        pytest.param(1.05, 0.83, 4 * CLEAR, False, id="what is above the whole is chance"),
        pytest.param(0.5, 0.0, 2 * CLEAR, False, id="half is not most"),
    ],
)
def test_proportions_or_faults(share: float, of_faults: float, distance: float, expected: bool) -> None:
    assert _rather_proportions(share, of_faults, distance) is expected
