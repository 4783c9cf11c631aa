# SPDX-License-Identifier: Apache-2.0
"""Averages kept by other libraries take the place of a network's weights for one evaluation."""

import copy
import signal
from types import SimpleNamespace

import pytest
import torch
from _helpers.loops import Generator, small
from diffusers.training_utils import EMAModel
from torch import nn

from genmonitor._stop import SIGNALS
from genmonitor.monitoring.averages import averaged_weights

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(only \\d+ images of|only \\d+ real images|no single place)"),
]


def network():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def twice(module):
    """A copy with all weights and statistics doubled."""
    other = copy.deepcopy(module)
    for value in other.state_dict().values():
        value.mul_(2)
    return other


def diffusers_average(module, updates=1):
    average = EMAModel(twice(module).parameters())
    average.optimization_step = updates
    return average


def torch_average(module, updates=1):
    average = torch.optim.swa_utils.AveragedModel(twice(module))
    average.n_averaged.fill_(updates)
    return average


class ModelEmaV3(nn.Module):
    """An average as timm keeps it, which takes the weights at every update."""

    def __init__(self, module):
        super().__init__()
        self.module, self.decay = module, 0.999


def ema_pytorch_average(module, updates=1, every=1):
    steps = {"step": torch.tensor(updates), "update_every": every}
    return SimpleNamespace(ema_model=twice(module), online_model=[module], **steps)


AVERAGES = {
    "diffusers": diffusers_average,
    "ema_pytorch": ema_pytorch_average,
    "timm": lambda module: ModelEmaV3(twice(module)),
    "torch": torch_average,
}
UNBEGUN = {
    "diffusers": lambda module: diffusers_average(module, 0),
    "ema_pytorch": lambda module: ema_pytorch_average(module, 9, every=10),
    "torch": lambda module: torch_average(module, 0),
}


@pytest.mark.parametrize("library", UNBEGUN)
def test_an_average_that_has_not_begun_leaves_the_own_weights_and_it_is_said(library):
    own, said = network(), []
    before = copy.deepcopy(own.state_dict())
    with averaged_weights(UNBEGUN[library](own), own, said.append):
        assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())
    assert len(said) == 1
    assert said[0].endswith("has averaged no weights yet, so the network's own are evaluated until it has")


def test_an_average_that_does_not_say_whether_it_has_begun_is_refused_by_name():
    own = network()
    average = SimpleNamespace(module=twice(own))
    with pytest.raises(TypeError, match="but SimpleNamespace has no such number"), averaged_weights(average, own):
        pass


@pytest.mark.parametrize("library", AVERAGES)
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "among others"])
def test_averages_are_there_inside_the_block_and_the_own_weights_after_it(library, inside):
    own = network()
    module = nn.ModuleList([nn.Linear(2, 3), own]) if inside else own
    before = copy.deepcopy(module.state_dict())
    seen = []

    def fail():
        with averaged_weights(AVERAGES[library](own), module):
            seen.append(own[2].weight.detach().clone())
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        fail()
    assert torch.equal(seen[0], 2 * before["1.2.weight" if inside else "2.weight"])
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_buffers_are_averaged_where_they_are_kept():
    own = network()
    with averaged_weights(AVERAGES["timm"](own), own):
        assert own[1].running_var.tolist() == [2, 2, 2]
    assert own[1].running_var.tolist() == [1, 1, 1]


def test_none_leaves_the_own_weights():
    own = network()
    with averaged_weights(None, own):
        assert not own[2].weight.equal(twice(own)[2].weight)


@pytest.mark.parametrize("library", AVERAGES)
def test_averages_of_another_network_are_refused(library):
    with (
        pytest.raises(ValueError, match="none has its 2 parameters"),
        averaged_weights(AVERAGES[library](nn.Linear(5, 5)), network()),
    ):
        pass


@pytest.mark.parametrize("library", AVERAGES)
@pytest.mark.parametrize("networks", [lambda: [network(), network()], lambda: [nn.Sequential(network(), network())]])
def test_an_average_of_one_of_several_networks_alike_is_refused(library, networks):
    """As of CycleGAN's second generator, or of one block of a network."""
    with (
        pytest.raises(ValueError, match="2 have its 6 parameters"),
        averaged_weights(AVERAGES[library](network()), nn.ModuleList(networks())),
    ):
        pass


def test_an_average_inside_the_module_that_draws_is_not_taken_for_the_network():
    own = network()
    average, before = torch_average(own), own[2].weight.clone()
    with averaged_weights(average, nn.ModuleList([average, own])):
        assert own[2].weight.equal(2 * before)


def test_what_keeps_no_average_is_refused():
    with pytest.raises(TypeError, match=r"to be diffusers' EMAModel, .* but got dict"), averaged_weights({}, network()):
        pass


def test_a_loop_evaluates_the_average_and_trains_on_with_its_own_weights(tmp_path):
    own = Generator()
    average = copy.deepcopy(own)
    for value in average.parameters():
        value.data += 0.3
    kept = EMAModel(average.parameters())
    kept.optimization_step = 1
    values = []
    for name, generator, ema in (
        ("own", own, None),
        ("average", average, None),
        ("ema", own, kept),
    ):
        (tmp_path / name).mkdir()
        before = copy.deepcopy(generator.state_dict())
        monitor = small(tmp_path / name, "regions")
        values.append(monitor.evaluate(generator, step=0, epoch=0, ema=ema).values["image"])
        assert all(torch.equal(value, before[key]) for key, value in generator.state_dict().items())
    assert values[0] != values[1] == values[2]


@pytest.mark.filterwarnings("ignore:LoopMonitor. the (evaluation of epoch|set-up was left)")
@pytest.mark.parametrize("first", [True, False], ids=["in the set-up", "later"])
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_during_an_evaluation_is_handled_with_the_weights_that_train(tmp_path, name, first):
    number, own, saved = getattr(signal, name), Generator(), []
    kept, monitor = torch_average(own), small(tmp_path, "regions")
    weight = own.net[0].weight.detach().clone()

    def sample(n):
        if not saved and bool(monitor.history) is not first:
            signal.raise_signal(number)
        return own.sample(n)

    def save(*_):
        saved.append((torch.equal(own.net[0].weight, weight), own.training))

    before = signal.signal(number, save)
    try:
        assert (monitor.evaluate(sample, own, step=0, epoch=0, ema=kept) is None) is first
        assert (monitor.evaluate(sample, own, step=1, epoch=1, ema=kept) is None) is not first
    finally:
        signal.signal(number, before)
    assert saved == [(True, True)]
