# SPDX-License-Identifier: Apache-2.0
import signal

import pytest
import torch
from _helpers import stopped_ranks
from _helpers.evaluations import ScriptedCollective
from _helpers.processes import in_two_processes

from genmonitor.distributed import FailedElsewhereError, SingleProcess, current_processes


def fail():
    raise KeyError("here")


def test_single_process_hears_nobody_else():
    comm = SingleProcess()
    assert (comm.rank, comm.world_size) == (0, 1)
    assert (comm.all_true(True), comm.all_true(False), comm.any_true(False)) == (True, False, False)
    assert comm.broadcast("x") == "x"


def test_without_torch_distributed_there_is_one_process():
    assert isinstance(current_processes(), SingleProcess)


@pytest.mark.parametrize(("own", "other", "expected"), [(0, 0, False), (0, 1, True), (1, 0, True)])
def test_any_true_asks_every_process(own, other, expected):
    # what the other one answers is whether its flag is false
    assert ScriptedCollective(other=not other).any_true(bool(own)) is expected


def test_all_ranks_or_none_passes_where_all_succeed():
    comm = ScriptedCollective()
    with comm.all_ranks_or_none():
        pass
    assert comm.flags == [True]


def test_all_ranks_or_none_raises_its_own_error_and_tells():
    comm = ScriptedCollective()
    with pytest.raises(KeyError, match="here"), comm.all_ranks_or_none():
        fail()
    assert comm.flags == [False]


def test_all_ranks_or_none_raises_where_another_failed():
    with (
        pytest.raises(FailedElsewhereError, match=r"Another process failed.* Process 1: KeyError: there"),
        ScriptedCollective(other=False).all_ranks_or_none(),
    ):
        pass


@pytest.mark.parametrize("code", [None, 0, 3, "text"])
def test_a_process_that_ends_tells_the_others(code):
    comm = ScriptedCollective()
    with pytest.raises(SystemExit) as ended, comm.all_ranks_or_none():
        raise SystemExit(code)
    assert (ended.value.code, comm.flags) == (code, [False])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(128 + signal.SIGTERM), GeneratorExit()])
def test_a_process_that_a_signal_ends_waits_for_nobody(error):
    """The others may need minutes for their part, and a signal may come in the middle of a collective."""
    comm = ScriptedCollective()
    with pytest.raises(type(error)), comm.all_ranks_or_none():
        raise error
    assert comm.flags == []


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    return in_two_processes(stopped_ranks.end, tmp_path_factory.mktemp("ended"))


@pytest.mark.parametrize("reason", stopped_ranks.ENDS)
def test_the_others_say_which_process_ends_and_why(ended, reason):
    others, own = (rank[reason] for rank in ended)
    assert own == reason
    assert others == f"SystemExit: Another process ends, so this one ends too. Process 1 ends by {reason}"


@pytest.mark.parametrize("which", stopped_ranks.INTERRUPTED)
def test_a_process_that_is_interrupted_is_named_with_the_reason(tmp_path, which):
    said = in_two_processes(stopped_ranks.INTERRUPTED[which], tmp_path)
    assert said[which] == "KeyboardInterrupt: "
    assert said[1 - which] == (
        f"MissingProcessError: Process {1 - which} waited for another, which has ended, so it stops here too. "
        f"Process {which} ended by KeyboardInterrupt."
    )


def test_from_rank_zero_makes_it_there():
    assert ScriptedCollective(rank=0).from_rank_zero(lambda: 7) == 7


def test_from_rank_zero_makes_nothing_elsewhere():
    assert ScriptedCollective(rank=1, sent=7).from_rank_zero(fail) == 7


@pytest.mark.parametrize("comm", [ScriptedCollective(rank=0), ScriptedCollective(rank=1, sent=KeyError("here"))])
def test_from_rank_zero_raises_its_error_everywhere(comm):
    with pytest.raises(KeyError, match="here"):
        comm.from_rank_zero(fail)


def test_gather_rows_of_one_process_are_its_own():
    rows = torch.arange(6.0).view(3, 2)
    assert torch.equal(SingleProcess().gather_rows(rows), rows)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
def test_rank_indices_cover_everything_once(n):
    parts = [ScriptedCollective(rank).rank_indices(n) for rank in (0, 1)]
    assert [i for part in parts for i in part] == list(range(n))
    assert abs(len(parts[0]) - len(parts[1])) <= 1


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    return in_two_processes(stopped_ranks.leave, tmp_path_factory.mktemp("left"))


@pytest.mark.parametrize("part", stopped_ranks.PARTS)
def test_two_processes_that_are_told_to_stop_leave_together_within_seconds(left, part):
    assert all(seconds[part] < 5 for seconds in left)


def test_a_computation_outside_of_an_evaluation_is_left_to_whoever_handles_the_signal():
    received, before = [], signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        assert SingleProcess().from_rank_zero(lambda: signal.raise_signal(signal.SIGTERM) or 7) == 7
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]
