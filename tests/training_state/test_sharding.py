# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import pytest
import torch
from _helpers.two_ranks_in_step import in_a_loop, whole
from torch import nn

from genmonitor.training_state import sharding
from genmonitor.training_state.sharding import gather, kept_sharded, sharded_parts, tensor_parallel_size


def test_whole_model_has_no_sharded_parts():
    net = nn.Sequential(nn.Linear(2, 2))
    assert sharded_parts(net) == []
    assert tensor_parallel_size(net) == 1
    assert gather([], 7) == [7]
    with kept_sharded(net):
        assert net(torch.ones(1, 2)).shape == (1, 2)


def test_torch_that_cannot_go_on_after_an_error_is_refused(monkeypatch):
    monkeypatch.setattr(sharding, "sharded_parts", lambda module: [SimpleNamespace(reshard=None)])
    with (
        pytest.raises(ValueError, match=r"torch 2.13 or newer.*Install a newer torch, or leave the monitor out"),
        kept_sharded(nn.Linear(2, 2)),
    ):
        pass


@pytest.mark.slow
def test_parts_are_what_was_split(ranks_in_step):
    for found in ranks_in_step:
        assert found["parts"] == ["FSDPSequential", "FSDPLinear", "FSDPLinear"]
        assert found["gathered"] == [0, 1]


@pytest.mark.slow
def test_nothing_else_calls_a_sharded_part_and_nothing_stays_gathered(ranks_in_step):
    for rank, found in enumerate(ranks_in_step):
        said, sizes = found["called by something else"]
        assert "Sequential to be used only to draw samples, but FSDPSequential is called by something else" in said
        assert sizes == [[6, 3, 40, 8], [4, 2, 40, 8]][rank]


@pytest.mark.slow
def test_what_moved_on_one_process_is_put_back_and_told_on_all(ranks_in_step):
    for found in ranks_in_step:
        (said,), back = found["one moved"]
        assert "which is put back as it was: parameter 0.bias." in said
        assert back


@pytest.mark.slow
def test_plain_loop_measures_what_it_does_of_the_whole_model(ranks_in_step):
    (expected,) = in_a_loop(whole())
    for found in ranks_in_step:
        assert found["in a loop"] == [pytest.approx(expected, rel=1e-6, abs=1e-6)]
