# SPDX-License-Identifier: Apache-2.0
import signal
from contextlib import nullcontext

import pytest

from genmonitor._stop import StopEvaluation, check_stop, stops_alone, stops_when, told_to_stop


@pytest.fixture
def told():
    """Note SIGTERM as a Trainer does; return the notes."""
    notes = []
    before = signal.signal(signal.SIGTERM, lambda number, _: notes.append(number))
    yield notes
    signal.signal(signal.SIGTERM, before)


def test_sigterm_leaves_the_block_once_whoever_handles_it_has_noted_it(told):
    handler = signal.getsignal(signal.SIGTERM)

    def computation():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)  # a second one disturbs no clean-up
            told.append("cleaned up")

    with pytest.raises(StopEvaluation), stops_when(lambda: bool(told)):
        computation()
    assert told == [signal.SIGTERM, signal.SIGTERM, "cleaned up"]
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.parametrize(
    ("alone", "inner", "leaves"),
    [(True, nullcontext(), True), (False, nullcontext(), False), (False, stops_alone(True), True),
     (False, stops_alone(False), False)],
    ids=["alone", "others wait", "a part alone", "a part together"],
)  # fmt: skip
def test_a_process_leaves_only_where_no_other_waits_for_it(told, alone, inner, leaves):
    with pytest.raises(StopEvaluation) if leaves else nullcontext(), stops_when(lambda: bool(told), alone=alone), inner:
        signal.raise_signal(signal.SIGTERM)
        assert told_to_stop() is not leaves
    with pytest.raises(StopEvaluation) if alone else nullcontext(), stops_when(lambda: True, alone=alone):
        check_stop()
    check_stop()


def test_handlers_that_python_did_not_set_stay(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)
    monkeypatch.setattr(signal, "signal", pytest.fail)
    with stops_when(lambda: False):
        check_stop()
