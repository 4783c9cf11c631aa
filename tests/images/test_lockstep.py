# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.two_ranks_in_step import BATCH, whole
from torch import nn

from genmonitor.images.lockstep import Lockstep


def test_whole_model_is_left_to_itself():
    lockstep = Lockstep(nn.Linear(2, 2), torch.device("cpu"))
    assert lockstep.share([3, 4]) == [3, 4]
    assert lockstep.gather("mine") == ["mine"]
    with pytest.raises(KeyError, match="no samples today"), lockstep.batch():
        raise KeyError("no samples today")


@pytest.mark.slow
def test_all_draw_as_many(ranks_in_step):
    assert [found["shares"] for found in ranks_in_step] == [[[4, 5, 6], [], [0, 0]], [[7, 0, 0], [], [8, 9]]]


@pytest.mark.slow
def test_error_of_one_process_reaches_all(ranks_in_step):
    for what in ("one fails", "one fails inside"):
        elsewhere, here = (found[what] for found in ranks_in_step)
        assert elsewhere == "FailedElsewhereError: Another process failed, so this one stops here too."
        assert here == "KeyError: 'no samples today'"


@pytest.mark.slow
def test_processes_that_part_ways_are_told_so(ranks_in_step):
    for found in ranks_in_step:
        assert (
            "RuntimeError: Expected a sampler that runs the parts of a sharded model equally"
            in found["one draws once more"]
        )


@pytest.mark.slow
def test_model_draws_the_same_after_errors_and_holds_its_part_alone(ranks_in_step):
    for rank, found in enumerate(ranks_in_step):
        for when in ("before an error", "after errors"):
            outputs, sizes = found[when]
            torch.testing.assert_close(outputs, whole()(BATCH).detach(), rtol=0, atol=1e-6)
            assert sizes == [[6, 3, 40, 8], [4, 2, 40, 8]][rank]
