# SPDX-License-Identifier: Apache-2.0
"""Processes agree on dtype and shape before they send anything, and none waits for one that does not come."""

import pytest
import torch
from _helpers.citizens import CITIZENS
from _helpers.processes import in_two_processes
from _helpers.three_processes import NAMES, evaluated, everything

from genmonitor import MaximumMeanDiscrepancy

pytestmark = pytest.mark.slow  # three processes start


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return in_two_processes(everything, tmp_path_factory.mktemp("ranks"), count=3)


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_takes_other_dtypes_and_none_on_other_processes(ranks, name):
    expected = CITIZENS[name].fed().compute()
    for rank in ranks:
        torch.testing.assert_close(rank["metrics"][name], expected, rtol=0, atol=1e-5)


def test_rows_are_gathered_in_the_widest_dtype(ranks):
    expected = torch.tensor([[1.0] * 3, [2.0] * 3, [2.0] * 3], dtype=torch.float64)
    for rank in ranks:
        torch.testing.assert_close(rank["rows"], expected)


def test_rows_of_other_shapes_are_refused_on_every_process(ranks):
    for rank in ranks:
        assert "one shape on every process, but got [1] per sample on process 1 and [2] on process 2" in rank["shapes"]


def test_a_metric_of_other_shapes_is_refused_everywhere_and_goes_on_alone(ranks):
    for i, rank in enumerate(ranks):
        text, kept, value = rank["metric's shapes"]
        assert "Expected `fake_samples` of one shape on every process, but got [2] per sample on process 0" in text
        alone = MaximumMeanDiscrepancy()
        for real in (True, False):
            alone.update(torch.rand(4, 2 + i, generator=torch.Generator().manual_seed(i)), real=real)
        assert (kept, value) == (4, float(alone.compute()))


@pytest.mark.filterwarnings("ignore:LoopMonitor. no p-values")
@pytest.mark.parametrize("case", ["two samples", "float64 on one"])
def test_an_evaluation_takes_other_dtypes_and_none_on_other_processes(ranks, case):
    n = 2 if case == "two samples" else 51
    (expected,) = evaluated(0, n, odd=None if n == 2 else 9)
    for rank in ranks:
        (found,) = rank[case]
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5, nan_ok=True)


def test_one_process_evaluates_alone_while_others_go_on(ranks):
    assert ranks[0]["one alone"] == evaluated(0, 51)


def test_a_call_that_others_do_not_make_is_said_instead_of_waited_for(ranks):
    came = "evaluate() must be called by every process; {} of 3 came within 2 s. Call it on all of them, with"
    assert came.format(1) in ranks[0]["main process only"]
    assert all(came.format(2) in rank["two of three"] for rank in ranks[:2])
    steps = [rank["other steps"] for rank in ranks]
    assert ["at step 0, and others were at 10" in said for said in steps] == [True, False, True]
    assert "at step 10, and others were at 0" in steps[1]
    assert all(came.format(2) in rank["too late"] for rank in ranks[:2])
    assert "this one came when another had given up waiting for it" in ranks[2]["too late"]
    assert [rank["all of them"] for rank in ranks] == ["", "", ""]
