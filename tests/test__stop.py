# SPDX-License-Identifier: Apache-2.0
import signal
from contextlib import nullcontext

import pytest

from genmonitor._stop import SIGNALS, StopEvaluation, check_stop, handlers_wait, stops_alone, stops_when, told_to_stop


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


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "others wait"])
@pytest.mark.parametrize("name", SIGNALS)
def test_handlers_wait_until_the_block_is_undone(name, alone):
    number, came = getattr(signal, name), []

    def handler(number, _):
        came.append("handled")

    before = signal.signal(number, handler)
    try:
        with handlers_wait(), pytest.raises(StopEvaluation) if alone else nullcontext():
            with stops_when(lambda: False, alone=alone):
                signal.raise_signal(number)
                assert told_to_stop()
            came.append("undone" if not alone else "not left")
        came.append("after")
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert came == (["handled", "after"] if alone else ["undone", "handled", "after"])


@pytest.mark.parametrize(
    ("number", "handler"), [(signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)]
)
def test_an_interruption_and_what_nobody_handles_do_not_wait(number, handler):
    before = signal.signal(number, handler)  # a process in the background may ignore it
    try:
        with handlers_wait():
            assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
