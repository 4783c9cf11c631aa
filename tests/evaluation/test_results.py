# SPDX-License-Identifier: Apache-2.0
import math

from genmonitor.evaluation.regions.evaluation import RegionEvaluation
from genmonitor.evaluation.results import Evaluation, FitReport, curve


def test_curve_has_gaps_where_a_value_came_later():
    first, second = curve([{"epoch": 0.0}, {"epoch": 1.0, "fid": 3.0}], "fid")
    assert math.isnan(first)
    assert second == 3.0


def test_reports_are_silent_and_comparable_by_default():
    assert FitReport().comparable
    assert FitReport().notes == Evaluation({}).notes == ()


def test_an_evaluation_is_told_by_its_values():
    found = RegionEvaluation({"image": 0.123456789, "dependent_regions": 2.0}, None, notes=("few images",))
    assert repr(found) == "RegionEvaluation(image=0.123457, dependent_regions=2)"
