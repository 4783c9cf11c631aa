# SPDX-License-Identifier: Apache-2.0
"""Random generators that datasets and modules hold: what is read or drawn for a check does not move them."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, Subset

from genmonitor.evaluation.data.images import ImageSource
from genmonitor.evaluation.rng import find_generators, preserve_generators
from genmonitor.evaluation.isolation import preserve_training_state

KINDS = {
    "torch": (lambda: torch.Generator().manual_seed(0), lambda g: float(torch.rand((), generator=g))),
    "numpy": (lambda: np.random.default_rng(0), lambda g: g.random()),
    "numpy, the old one": (lambda: np.random.RandomState(0), lambda g: g.random_sample()),
    "python": (lambda: random.Random(0), lambda g: g.random()),
}


class Noise:
    """A transform that draws from a generator it was given."""

    def __init__(self, kind):
        make, self.draw = KINDS[kind]
        self.generator = make()

    def __call__(self, image):
        return image + self.draw(self.generator)


class Noisy(Dataset):
    def __init__(self, kind):
        self.transforms = [Noise(kind)]

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return self.transforms[0](torch.zeros(1, 2, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_images_are_the_same_whenever_they_are_read_and_reading_moves_nothing(kind):
    read, left = Noisy(kind), Noisy(kind)
    source = ImageSource(Subset(read, range(10)), None, "the data")
    first, again = source.read(range(10)), source.read([3])
    assert torch.equal(first[3:4], again)
    assert len(first.unique()) == 10
    assert torch.equal(read[0], left[0])  # what training draws next


@pytest.mark.parametrize("kind", KINDS)
def test_a_modules_own_generator_is_put_back_also_after_an_error(kind):
    module, left = nn.Sequential(nn.Linear(2, 2)), Noise(kind)
    module[0].noise = Noise(kind)

    def stopped():
        with preserve_training_state(module):
            module[0].noise(0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert module[0].noise(0) == left(0)


def test_each_is_found_once_and_what_has_no_state_is_left():
    class Holder:
        def __init__(self):
            self.me, self.both = self, {"a": random.Random(0), "b": [random.SystemRandom()]}
            self.both["c"] = self.both["a"]
            self.many = [random.Random(0) for _ in range(1000)]  # a dataset's items, not its generators

    holder = Holder()
    assert find_generators(holder) == [holder.both["a"]]
    with preserve_generators(find_generators(holder)):
        holder.both["a"].random()
    assert holder.both["a"].random() == random.Random(0).random()
