# SPDX-License-Identifier: Apache-2.0
"""Which of many cases a contributor waits for, and which CI does."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """Mark cases of a parametrization as slow, except some."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def nightly_but(cases: Iterable[Any], *in_ci: Any) -> list[Any]:
    """Leave cases of a slow test to the nightly tests, except some."""
    return [case if case in in_ci else pytest.param(case, marks=pytest.mark.nightly) for case in cases]
