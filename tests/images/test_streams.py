# SPDX-License-Identifier: Apache-2.0
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from genmonitor.images import streams
from genmonitor.images.image_set import ImageSet
from genmonitor.images.streams import is_stream, take_items


class Stream(IterableDataset):
    """Images whose values count them, with a label and a caption each."""

    def __init__(self, n=50, noise=False):
        self.n, self.noise = n, noise
        self.rng = np.random.default_rng(5)

    def __iter__(self):
        for i in range(self.n):
            noise = self.rng.normal() + random.random() if self.noise else 0.0
            yield {"image": torch.full((1, 4, 4), i + noise), "label": i % 3, "caption": f"number {i}"}


def values(items):
    return ImageSet(items, None, "x").read(range(len(items)))[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("batch_size", [1, 7, 50])
def test_take_items_keeps_the_order_of_the_stream(batch_size):
    items = take_items(DataLoader(Stream(), batch_size), None, "x")
    assert values(items) == list(range(50))


def test_take_items_keeps_what_belongs_to_an_image():
    items = take_items(Stream(), None, "x")
    assert items[4]["label"] == 1
    assert items[4]["caption"] == "number 4"
    assert default_collate([items[1], items[2]])["caption"] == ["number 1", "number 2"]


def test_take_items_reads_ready_batches():
    class Batches(IterableDataset):
        def __iter__(self):
            yield from (torch.full((5, 1, 4, 4), float(i)) for i in range(3))

    items = take_items(DataLoader(Batches(), batch_size=None), None, "x")
    assert values(items) == [0] * 5 + [1] * 5 + [2] * 5


def test_take_items_reads_tuples():
    class Pairs(IterableDataset):
        def __iter__(self):
            yield from ((torch.zeros(1, 4, 4), i) for i in range(6))

    assert int(take_items(Pairs(), None, "x")[3][1]) == 3


@pytest.mark.parametrize("limit", [10, 33])
def test_take_items_stops_at_its_number(monkeypatch, limit):
    monkeypatch.setattr(streams, "MAX_ITEMS", limit)
    assert len(take_items(DataLoader(Stream(10**9), 8), None, "x")) == limit


def test_take_items_stops_at_its_memory(monkeypatch):
    monkeypatch.setattr(streams, "MAX_BYTES", 10 * 16 * 4)
    assert len(take_items(DataLoader(Stream(10**9), 4), None, "x")) == 12


def test_take_items_repeats_itself_and_moves_no_generator():
    stream = Stream(noise=True)
    random.seed(3)
    before = stream.rng.bit_generator.state, random.getstate()
    first = values(take_items(stream, None, "x"))
    assert (stream.rng.bit_generator.state, random.getstate()) == before
    stream.rng.normal()
    random.random()
    assert values(take_items(stream, None, "x")) == first


def test_take_items_leaves_persistent_workers_alone():
    loader = DataLoader(Stream(20), 5, num_workers=1, persistent_workers=True)
    training = iter(loader)
    next(training)
    take_items(loader, None, "x")
    assert float(next(training)["image"][0, 0, 0, 0]) == 5


def test_take_items_refuses_an_iterator():
    with pytest.raises(ValueError, match=r"Expected the data as data that can be read more than once.*iterator"):
        take_items(iter([torch.zeros(2, 1, 4, 4)]), None, "the data")


def test_is_stream_knows_what_has_an_index():
    plain = TensorDataset(torch.zeros(3, 1, 2, 2))
    assert [is_stream(x) for x in (plain, DataLoader(plain), torch.zeros(2), [1])] == [False] * 4
    assert [is_stream(x) for x in (Stream(), DataLoader(Stream()), DataLoader(Stream(), None))] == [True] * 3
