# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler, TensorDataset

from genmonitor.callbacks.integration.splits import check_split
from genmonitor.evaluation.collective import Collective

DATA = TensorDataset(torch.zeros(9, 1, 2, 2))
WHOLE = DataLoader(DATA, 2)


class First(Collective):
    """One of two processes, told what rank zero sends."""

    rank, world_size = 0, 2

    def __init__(self, sent=None):
        self.sent = sent

    def all_true(self, flag):
        return flag

    def broadcast(self, value):
        return value if self.sent is None else self.sent


def part(indices, data=DATA):
    return DataLoader(data, batch_sampler=BatchSampler(SubsetRandomSampler(indices), 2, drop_last=False))


GIVEN = part([0, 1, 2]), part([3, 4])


@pytest.mark.parametrize(
    ("used", "which"),
    [
        ((WHOLE, WHOLE), "training and validation data are all 9"),
        ((WHOLE, GIVEN[1]), "training data are all 9"),
        ((GIVEN[0], WHOLE), "validation data are all 9"),
    ],
)
@pytest.mark.parametrize("given", [GIVEN, None], ids=["known", "nobody knows"])
def test_split_that_was_lost_is_refused(used, which, given):
    with pytest.raises(ValueError, match=rf"several processes {which} images of the TensorDataset.*`real_images=`"):
        check_split(used, given, First())


@pytest.mark.parametrize(
    ("used", "given"),
    [
        (GIVEN, GIVEN),
        (GIVEN, None),
        ((WHOLE, WHOLE), (WHOLE, DataLoader(DATA, 3, sampler=RandomSampler(DATA)))),
        ((WHOLE, GIVEN[1]), (WHOLE, GIVEN[1])),
        ((WHOLE, DataLoader(TensorDataset(*DATA.tensors), 2)), None),
        ((WHOLE, None), None),
        ((None, None), None),
        (([torch.zeros(2, 1, 2, 2)], [torch.zeros(2, 1, 2, 2)]), None),
    ],
    ids=["kept", "kept, given by hooks", "meant so", "a part meant so", "two datasets", "alone", "none", "lists"],
)
def test_what_was_meant_so_is_let_through(used, given):
    check_split(used, given, First())


def test_samplers_that_differ_between_processes_are_refused():
    loaders = part([2, 0, 1]), part([1, 0, 2])
    check_split(loaders, None, First([0, 1, 2]))
    with pytest.raises(ValueError, match=r"sampler of the training data .* same images on every process.*Seed"):
        check_split(loaders, None, First([0, 1, 3]))
