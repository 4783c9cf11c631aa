# SPDX-License-Identifier: Apache-2.0
from genmonitor.monitoring.options import MAX_FAILURES, FailurePolicy


def test_policy_switches_off_after_failures_in_a_row():
    policy = FailurePolicy()
    assert [policy.failed() for _ in range(MAX_FAILURES - 1)] == [False] * (MAX_FAILURES - 1)
    policy.reset()
    assert [policy.failed() for _ in range(MAX_FAILURES)] == [False] * (MAX_FAILURES - 1) + [True]
    assert policy.switched_off
    policy.try_again()
    assert not policy.switched_off


def test_policy_counts_no_samples_that_are_not_finite():
    policy = FailurePolicy()
    assert [policy.found_not_finite() for _ in range(9)] == [True] + [False] * 8
    assert not policy.switched_off
    policy.reset()
    assert policy.found_not_finite()


def test_policy_goes_on_from_its_state():
    policy, other = FailurePolicy(), FailurePolicy()
    policy.failed()
    other.load_state_dict(policy.state_dict())
    assert other.count == 1
