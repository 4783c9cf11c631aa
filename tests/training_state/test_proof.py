# SPDX-License-Identifier: Apache-2.0
"""What an evaluation moves of a training is put back and named, or named where there was no memory for a copy."""

import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from genmonitor.images.model import SampledModel
from genmonitor.images.sampler import Sampler
from genmonitor.training_state import proof
from genmonitor.training_state.fingerprints import fingerprint_of
from genmonitor.training_state.isolation import preserve_training_state
from genmonitor.training_state.proof import Trained, prove_unchanged


class Training:
    """A network with an average, optimizers and schedulers in the middle of a training."""

    def __init__(self):
        torch.manual_seed(0)
        self.module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        self.average = torch.optim.swa_utils.AveragedModel(self.module)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), 1e-2)
        steps = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
        constant = torch.optim.lr_scheduler.ConstantLR(self.optimizer)
        self.scheduler = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [constant, steps], [2])
        self.logged = {"val_loss": 1.0}
        for _ in range(3):
            self.step()

    def step(self):
        self.module(torch.randn(5, 2)).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()

    def everything(self):
        states = self.module, self.average, self.optimizer, self.scheduler
        draws = torch.rand(2), np.random.rand(), random.random()  # noqa: NPY002
        return repr(([x.state_dict() for x in states], self.optimizer.param_groups, self.logged, draws))

    def trained(self):
        return Trained(
            self.module,
            optimizers=[self.optimizer],
            others={"scheduler 0": self.scheduler, "logged values": self.logged},
            averaged=self.average.module,
        )


@torch.no_grad()
def add_one(tensor):
    tensor.view(-1)[0] += 1


def swap_in(training):
    """What a sampler does that ran out of memory before it swapped the average out again."""
    for own, average in zip(training.module.parameters(), training.average.module.parameters(), strict=True):
        own.data.copy_(average.data)


CHANGES = {
    "parameter 0.bias": lambda run: add_one(run.module[0].bias),
    "parameter 0.weight": swap_in,
    "buffer 1.running_mean": lambda run: run.module[1].running_mean.fill_(torch.nan),
    "averaged parameter 0.bias": lambda run: add_one(run.average.module[0].bias),
    "averaged buffer 1.num_batches_tracked": lambda run: run.average.module[1].num_batches_tracked.add_(1),
    "the state of parameter 0 in optimizer 0": lambda run: add_one(next(iter(run.optimizer.state.values()))["exp_avg"]),
    "optimizer 0.state": lambda run: run.optimizer.state.clear(),
    "optimizer 0.param_groups": lambda run: run.optimizer.param_groups[0].update(lr=1.0, weight_decay=0.5),
    "optimizer 0.param_groups, a new one": lambda run: run.optimizer.add_param_group(
        {"params": [nn.Parameter(torch.ones(1))]}
    ),
    "scheduler 0": lambda run: run.scheduler.step(),
    "logged values": lambda run: run.logged.update(val_loss=0.0, other=1.0),
    "the random state of torch": lambda run: torch.rand(1),
    "the random state of numpy": lambda run: np.random.rand(),  # noqa: NPY002
    "the random state of python": lambda run: random.random(),
}


def run(change, error=None, seed=7, **kept):
    """Return what is left of a training in which something changes, and what is said."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    training, said = Training(), []
    try:
        with prove_unchanged(training.trained(), said.append):
            change(training)
            if error:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    training.step()  # what is put back must still work
    return training.everything(), said


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("name", CHANGES)
def test_what_moved_is_put_back_and_named(name, error):
    expected, nothing = run(lambda training: None)
    found, said = run(CHANGES[name], error)
    assert (found, nothing) == (expected, [])
    assert [name.partition(",")[0] in text and "is put back" in text for text in said] == [True]


def test_a_change_without_memory_for_a_copy_is_said_with_the_way_back(monkeypatch):
    monkeypatch.setattr(proof, "_free_memory", lambda: 4 * 30)  # the weight's 24 bytes alone
    training, said = Training(), []
    trained = Trained(training.module, way_back=lambda: "Go back to last.ckpt.")
    with prove_unchanged(trained, said.append):
        swap_in(training)
        training.module[0].bias.data.add_(1)
    assert ["parameter 0.weight" in text for text in said] == [True, False]
    assert "cannot be put back: parameter 0.bias" in said[1]
    assert "Go back to last.ckpt." in said[1]


def test_memory_for_copies_is_a_quarter_of_what_is_free():
    assert 2**20 < proof._free_memory() < 2**50


def test_what_another_process_moved_is_named():
    said = []
    with prove_unchanged(Trained(nn.Linear(1, 1)), said.append, lambda own: [own, [(["parameter far"], [])]]):
        pass
    assert "parameter far" in said[0]


DTYPES = (torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.int8, torch.bool)


@pytest.mark.parametrize("size", [1, 3, 10_001])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_fingerprint_sees_every_number(dtype, size):
    x = torch.zeros(size, dtype=dtype)
    seen = {fingerprint_of(x)}
    for place in {0, size // 2, size - 1}:
        changed = x.clone()
        changed[place] = 1
        seen.add(fingerprint_of(changed))
    assert len(seen) == 1 + len({0, size // 2, size - 1})


def test_a_fingerprint_sees_what_changed_places():
    x = torch.arange(10_000.0)
    assert fingerprint_of(x) != fingerprint_of(x.flip(0))
    assert fingerprint_of(x.fill_(torch.nan)) == fingerprint_of(x.clone())


def forever(items):
    while True:
        yield from items


class Again:
    """A user's own iterator, which begins again."""

    def __init__(self, items):
        self.items, self.inside = items, iter(DataLoader(items, 1))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.inside)


ITERATORS = {
    "list": lambda: iter(list(range(99))),
    "range": lambda: iter(range(99)),
    "loader": lambda: iter(DataLoader(range(99))),
    "generator": lambda: (x for x in range(99)),
    "loader without end": lambda: forever(DataLoader(range(9))),
    "cycle": lambda: itertools.cycle(range(9)),
    "map": lambda: map(float, range(99)),
    "zip": lambda: zip(range(99), strict=True),
    "enumerate": lambda: enumerate(range(99)),
    "own class": lambda: Again(range(99)),
}
COPIED = ("list", "range")
VARIABLE = None


class Draws(nn.Linear):
    """Takes its conditions from an iterator that the training takes its own from too."""

    def __init__(self, held, take):
        super().__init__(1, 1)
        self.held, self.take = held, take

    def sample(self, n):
        self.take(self)
        return torch.zeros(n, 1, 2, 2)

    def training_step(self):
        return next(VARIABLE)


def in_closures(iterator):
    """Two functions know it."""

    class Knows(Draws):
        def training_step(self):
            return next(iterator)

    return Knows(None, lambda module: next(iterator)), lambda: next(iterator)


def in_a_variable(iterator):
    global VARIABLE
    VARIABLE = iterator
    return Draws(None, lambda module: next(VARIABLE)), lambda: next(VARIABLE)


def in_the_module(hold, find):
    def make(iterator):
        module = Draws(hold(iterator), lambda module: next(find(module.held)))
        return module, lambda: next(find(module.held))

    return make


HOLDERS = {
    "attribute": in_the_module(lambda x: x, lambda held: held),
    "list": in_the_module(lambda x: [x], lambda held: held[0]),
    "tuple in a dict": in_the_module(lambda x: {"a": (x,)}, lambda held: held["a"][0]),
    "closures": in_closures,
    "variable": in_a_variable,
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("kind", ITERATORS)
def test_an_iterator_that_sampling_moves_is_put_back_or_named(kind, holder):
    def seen(evaluations):
        (module, take), said = HOLDERS[holder](ITERATORS[kind]()), []
        taken = [take()]
        for _ in range(evaluations):
            with prove_unchanged(Trained(module), said.append), preserve_training_state(module):
                sample_fn = (lambda module, n: module.sample(n)) if holder == "attribute" else None
                Sampler(4, sample_fn=sample_fn).draw(SampledModel(module, torch.device("cpu")), range(4))
            taken.append(take())
        return taken + [take() for _ in range(2 - evaluations)], said

    (expected, _), (found, said) = seen(0), seen(2)
    named = [text for text in said if "cannot be put back" in text and "iterator" in text]
    assert (found == expected) if kind in COPIED else (len(named) == 2)


def test_an_iterator_that_sampling_leaves_alone_is_not_named():
    said = []
    for make in ITERATORS.values():
        module = Draws((make(), [make()]), lambda module: None)
        with prove_unchanged(Trained(module), said.append), preserve_training_state(module):
            Sampler(4).draw(SampledModel(module, torch.device("cpu")), range(4))
    assert not said
