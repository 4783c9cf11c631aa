# SPDX-License-Identifier: Apache-2.0
import re

import pytest
import torch
from lightning import LightningModule
from torch import nn

from genmonitor.images.model import SampledModel, suggested_call
from genmonitor.images.sampler import Sampler


class Generator(nn.Module):
    def __init__(self, device="cpu"):
        super().__init__()
        self.net = nn.Linear(2, 2, device=device)

    def sample(self, n):
        return n


class DistributedDataParallel(nn.Module):
    """Stands for torch's, which needs processes."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_a_module_draws_by_its_method():
    module = Generator(device="meta")
    model = SampledModel.of(module)
    assert (model.module, model.sample_fn, model.device) == (module, None, torch.device("meta"))


def test_a_wrapped_module_draws_without_its_wrapper():
    module = Generator()
    assert SampledModel.of(DistributedDataParallel(module)).module is module


def test_a_method_belongs_to_its_module():
    module = Generator()
    model = SampledModel.of(module.sample)
    assert (model.module, model.sample_fn(3)) == (module, 3)


def test_a_function_has_one_network_or_several():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    assert SampledModel.of(abs, first).module is first
    assert list(SampledModel.of(abs, (first, second)).module) == [first, second]


def test_networks_without_parameters_are_on_the_cpu():
    assert SampledModel.of(abs, []).device == torch.device("cpu")


@pytest.mark.parametrize("module", [None, 3, [nn.Linear(2, 2), 3]], ids=["none", "a number", "a number among them"])
def test_a_function_needs_its_networks(module):
    with pytest.raises(ValueError, match="`module`, the network or networks that `sample` draws with, but got"):
        SampledModel.of(lambda n: n, module)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match=r"`sample` to be a function from n to n images, .* but got int"):
        SampledModel.of(3)


def with_network(name, *layers):
    module = LightningModule()
    setattr(module, name, nn.Sequential(*layers))
    return module


@pytest.mark.parametrize(
    ("module", "line"),
    [
        (
            with_network("generator", nn.Linear(100, 64), nn.Unflatten(1, (1, 8, 8))),
            "m.generator(torch.randn(n, 100, device=m.device))",
        ),
        (
            with_network("netG", nn.ConvTranspose2d(64, 1, 8)),
            "m.netG(torch.randn(n, 64, 1, 1, device=m.device))",
        ),
        (
            with_network("decoder", nn.ReLU(), nn.Linear(16, 64), nn.Unflatten(1, (1, 8, 8))),
            "m.decoder(torch.randn(n, 16, device=m.device))",
        ),
        (nn.Sequential(nn.Linear(32, 64), nn.Unflatten(1, (1, 8, 8))), "m(torch.randn(n, 32))"),
    ],
)
def test_the_line_to_paste_draws(module, line):
    assert suggested_call(module, "m") == line
    assert eval(f"lambda m, n: {line}")(module, 3).shape == (3, 1, 8, 8)
    with pytest.raises(ValueError, match=re.escape(f"Perhaps: sample_fn=lambda m, n: {line}")):
        Sampler(4).resolve(SampledModel(module, torch.device("cpu")))
    in_loop = f"Perhaps: evaluate(lambda n: {line.replace('m(', 'model(').replace('m.', 'model.')}, model)"
    with pytest.raises(ValueError, match=f"give `evaluate` a function of n.*{re.escape(in_loop)}"):
        Sampler(4).resolve(SampledModel.of(module))


@pytest.mark.parametrize(
    "module", [nn.Identity(), with_network("model", nn.Conv2d(1, 8, 3)), with_network("generator")]
)
def test_no_line_is_made_up_for_what_takes_no_noise(module):
    assert suggested_call(module, "m") == ""
