# SPDX-License-Identifier: Apache-2.0
"""Processes agree on settings before anything is measured, and where one cannot begin none waits for it."""

import pytest
from _helpers.processes import in_two_processes
from _helpers.unlike_processes import FAILURES, HAVE, KINDS, SETTINGS, everything

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:LoopMonitor")]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return in_two_processes(everything, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", SETTINGS)
def test_other_settings_on_a_process_are_refused_by_every_process(ranks, name):
    (text, elsewhere), (own, failed_elsewhere) = (rank[name] for rank in ranks)
    assert (elsewhere, failed_elsewhere) == (True, False)
    assert own.startswith("Expected the same settings on every process, but ")
    assert name in own.partition(" of process 1")[0]
    assert own in text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FAILURES)
def test_a_process_that_cannot_begin_keeps_none_waiting(ranks, kind, name):
    if kind not in HAVE.get(name, KINDS):
        pytest.skip("has none")
    (text, elsewhere), (own, failed_elsewhere) = (rank[f"{kind}: {name}"] for rank in ranks)
    assert (elsewhere, failed_elsewhere) == (True, False)
    assert own
    assert own in text
