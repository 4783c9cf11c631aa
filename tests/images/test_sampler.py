# SPDX-License-Identifier: Apache-2.0
import math
import random

import numpy as np
import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Linear, digits
from lightning import LightningModule
from torch import nn

from genmonitor.images.lockstep import Lockstep
from genmonitor.images.model import SampledModel
from genmonitor.images.sampler import Sampler, draw_batch, free_memory, is_out_of_memory

pytestmark = LIGHTNING_SAYS


def sampled(module):
    return SampledModel(module, torch.device("cpu"))


def drawn(sample, batches, seed):
    return torch.cat([draw_batch(sample, batch, seed, Lockstep(nn.Module(), torch.device("cpu"))) for batch in batches])


def noisy(batch):
    """A sampler that takes noise from everywhere, the part that all samples share included."""
    n = len(batch)
    shared = torch.rand(()) + float(np.random.rand()) + random.random()  # noqa: NPY002
    return torch.randn(n, 1, 8, 8) + shared


def batched(n, size):
    return [list(range(i, min(i + size, n))) for i in range(0, n, size)]


def test_draw_gives_the_same_set_in_any_random_state():
    sets = []
    for state in (1, 2):
        torch.manual_seed(state)
        np.random.seed(state)  # noqa: NPY002
        random.seed(state)
        sets.append(drawn(noisy, batched(10, 4), seed=3))
    assert torch.equal(*sets)
    assert not torch.equal(sets[0], drawn(noisy, batched(10, 4), seed=4))


@pytest.mark.parametrize("size", [1, 3, 10, 100])
def test_draw_gives_the_same_samples_in_batches_of_any_size(size):
    def sample(batch):
        return torch.randn(len(batch), 1, 4, 4)

    expected = torch.cat([drawn(sample, [[i]], seed=3) for i in range(10)])
    assert torch.equal(drawn(sample, batched(10, size), seed=3), expected)
    assert len(expected.flatten(1).unique(dim=0)) == 10


def test_neighboring_seeds_and_indices_share_no_sample():
    def sample(batch):
        return torch.randn(len(batch), 1, 2, 2)

    both = torch.cat([drawn(sample, [list(range(50))], seed) for seed in (0, 1, 2)])
    assert len(both.flatten(1).unique(dim=0)) == 150


def test_draw_refuses_other_than_as_many_finite_images():
    model = SampledModel(nn.Linear(1, 1), torch.device("cpu"), lambda n: torch.zeros(3, 1, 2, 2))
    with pytest.raises(ValueError, match="Expected 4 generated images, but got 3"):
        Sampler(4).draw(model, range(4))
    with pytest.raises(ValueError, match=r"`generated images`.*2 of its 4 values are NaN"):
        drawn(lambda batch: torch.tensor([0.0, math.nan, 0.0, math.inf]).view(1, 1, 2, 2), [[0]], 0)
    with pytest.raises(TypeError, match=r"`generated images` to be a torch.Tensor, but got list.*`sample_fn=`"):
        drawn(lambda batch: [[0.0]], [[0]], 0)
    with pytest.raises(ValueError, match=r"looks like \[N, H, W, C\]"):
        drawn(lambda batch: torch.zeros(1, 8, 8, 3), [[0]], 0)


class Odd(LightningModule):
    """Draws one number for a whole batch."""

    def sample(self, n):
        return torch.randn(n, 1, 4, 4) + torch.randn(())


class OneByOne(LightningModule):
    def sample(self, n):
        return torch.cat([torch.randn(1, 1, 4, 4) for _ in range(n)])


def notes(module):
    sampler, model = Sampler(20), sampled(module)
    with torch.no_grad():
        return sampler.check_rows(model, sampler.draw(model, range(16)))


@pytest.mark.parametrize("module", [Odd(), OneByOne()])
def test_check_rows_finds_samples_that_depend_on_their_batch(module):
    (note,) = notes(module)
    assert "depend on the batch" in note
    assert "`sample_batch_size`" in note


def test_check_rows_is_silent_where_samples_do_not():
    assert notes(Linear()) == ()


def test_check_rows_needs_batches_to_compare():
    sampler = Sampler(20, batch_size=2)
    assert sampler.check_rows(sampled(Odd()), torch.zeros(16, 1, 4, 4)) == ()


def test_sampler_names_the_prompts_that_a_module_takes():
    class OnlyPrompted(LightningModule):
        def sample_prompts(self, prompts):
            return torch.zeros(len(prompts), 1, 4, 4)

    with pytest.raises(
        ValueError, match=r"no method `sample\(n\)`. Give `prompts=` for its `sample_prompts`, add one, or"
    ):
        Sampler(4).resolve(sampled(OnlyPrompted()))


def test_sampler_names_both_ways_to_draw():
    class Mute(LightningModule):
        pass

    with pytest.raises(ValueError, match=r"Mute has no method `sample\(n\)`.*`sample_fn=`"):
        Sampler(4).resolve(sampled(Mute()))
    with pytest.raises(ValueError, match=r"Mute has no method `sample_prompts\(prompts\)`.*`sample_fn=`"):
        Sampler(4, prompts=[0, 1]).resolve(sampled(Mute()))


def test_sampler_takes_a_function_of_the_module():
    sampler, module = Sampler(3, sample_fn=lambda module, n: digits(0, n) * module.lr, batch_size=2), Linear(lr=0.5)
    assert torch.equal(sampler.draw(sampled(module), range(2)), digits(0, 2) * 0.5)


def test_settings_change_with_what_samples_depend_on():
    assert Sampler(4).settings() == {"n_samples": 4, "seed": 0, "prompts": None}
    assert Sampler(4, prompts=range(2), seed=3).settings() == {"n_samples": 4, "seed": 3, "prompts": [0, 1]}


class Conditional(nn.Module):
    """Takes a condition first, as conditional generators do."""

    def sample(self, cond, batch_size=16):
        return torch.zeros(batch_size, 1, 4, 4)


def test_a_sampler_that_takes_n_for_something_else_is_told_so():
    with pytest.raises(ValueError, match=r"20 generated images, but got 16\. It takes n as its `cond`\..*`sample_fn=`"):
        Sampler(20).draw(SampledModel(Conditional(), torch.device("cpu")), range(20))


SAID = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"),
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous"),
]


@pytest.mark.parametrize("error", SAID, ids=["CUDA", "MPS", "cuDNN"])
def test_what_devices_say_is_understood(error):
    assert is_out_of_memory(error)


def test_what_the_cpu_says_is_understood():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("error", [RuntimeError("shapes do not match"), ValueError("out of memory")])
def test_other_errors_are_others(error):
    assert not is_out_of_memory(error)
    free_memory()
