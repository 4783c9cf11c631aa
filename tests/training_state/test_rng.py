# SPDX-License-Identifier: Apache-2.0
"""Random generators that datasets and modules hold: what is read or drawn for an evaluation does not move them."""

import random
from collections import deque
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, Subset

from genmonitor.images.image_set import ImageSet
from genmonitor.training_state.isolation import preserve_training_state
from genmonitor.training_state.rng import (
    preserve_rng,
    seed_everything,
    seed_generators,
)

KINDS = {
    "torch": (lambda: torch.Generator().manual_seed(0), lambda g: float(torch.rand((), generator=g))),
    "numpy": (lambda: np.random.default_rng(0), lambda g: g.random()),
    "numpy, its bits": (lambda: np.random.PCG64(0), lambda g: g.random_raw()),
    "numpy, the old one": (lambda: np.random.RandomState(0), lambda g: g.random_sample()),
    "python": (lambda: random.Random(0), lambda g: g.random()),
}


class Noise(nn.Module):
    """A transform that draws from a generator of its own."""

    def __init__(self, kind="torch"):
        super().__init__()
        make, self.draw = KINDS[kind]
        self.generator = make()

    def forward(self, image):
        return image + self.draw(self.generator)


class Noisy(Dataset):
    def __init__(self, kind):
        self.transforms = [Noise(kind)]

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return self.transforms[0](torch.zeros(1, 2, 2))


def next_numbers():
    return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()  # noqa: NPY002


def test_seed_everything_sets_torch_numpy_and_python():
    seed_everything(2**32 + 3)
    first = next_numbers()
    seed_everything(2**32 + 3)
    assert next_numbers() == first


def test_preserve_rng_restores_after_an_exception():
    seed_everything(1)
    expected = next_numbers()
    seed_everything(1)
    with pytest.raises(TypeError), preserve_rng():
        len(next_numbers()[2])  # a number has no length
    assert next_numbers() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_image_source_reads_the_same_of_a_random_dataset(kind):
    source = ImageSet(Subset(Noisy(kind), range(10)), None, "the data")
    first, again = source.read(range(10)), source.read([3])
    assert torch.equal(first[3:4], again)
    assert len(first.unique()) == 10


@pytest.mark.parametrize("kind", KINDS)
def test_image_source_moves_no_generator_of_its_dataset(kind):
    read, left = Noisy(kind), Noisy(kind)
    ImageSet(Subset(read, range(10)), None, "the data").read(range(10))
    assert torch.equal(read[0], left[0])


@pytest.mark.parametrize("kind", KINDS)
def test_training_state_includes_generators_of_the_module(kind):
    module, left = nn.Sequential(nn.Linear(2, 2)), Noise(kind)
    module[0].noise = Noise(kind)
    with pytest.raises(TypeError), preserve_training_state(module):
        len(module[0].noise(0))  # a number has no length
    assert module[0].noise(0) == left(0)


@pytest.mark.parametrize("kind", KINDS)
def test_seed_generators_sets_each_kind(kind):
    make, draw = KINDS[kind]
    first, second = make(), make()
    draw(second)
    seed_generators([getattr(x, "bit_generator", x) for x in (first, second)], 2**33 + 1)
    assert draw(first) == draw(second)


@dataclass(slots=True)
class Slotted:
    generator: random.Random


HOLDERS = {
    "deque": lambda generator: deque([generator]),
    "set": lambda generator: {generator},
    "slots": Slotted,
    "partial": lambda generator: partial(generator.uniform, 0, 1),
    "keyword": lambda generator: partial(max, 0, key=generator),
    "method": lambda generator: generator.random,
    "python's method": lambda generator: generator.uniform,
    "closure": lambda generator: lambda: generator.random(),
    "default": lambda generator: lambda own=generator: own.random(),
    "array": lambda generator: np.array([[generator]]),
}


@pytest.mark.parametrize("held", HOLDERS)
def test_generators_are_found_in_what_holds_them(held):
    generator = random.Random(0)
    module = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    module[-1].held = [HOLDERS[held](generator)]
    with preserve_training_state(module):
        generator.random()
    assert generator.random() == random.Random(0).random()
