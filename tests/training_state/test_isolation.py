# SPDX-License-Identifier: Apache-2.0
import random
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from genmonitor.training_state.isolation import preserve_training_state, remember_attributes


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout())
        self.register_buffer("calls", torch.tensor(float("nan")))
        self.register_buffer("absent", None)
        self.inner[2].eval()
        self.inner[0].bias.requires_grad_(False)
        self.inner(torch.randn(5, 2)).sum().backward()


def random_numbers():
    return torch.rand(3).tolist(), np.random.rand(3).tolist(), [random.random() for _ in range(3)]  # noqa: NPY002


def everything(module):
    """What a run would notice, bit by bit; the numbers drawn next come last because looking at them changes them."""
    values = {name: value.clone() for name, value in module.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
    switches = [p.requires_grad for p in module.parameters()], [part.training for part in module.modules()]
    return values, grads, switches, random_numbers()


def same(a, b):
    return all(torch.equal(torch.nan_to_num(a[0][k], 7.0), torch.nan_to_num(b[0][k], 7.0)) for k in a[0] | b[0]) and (
        all((x is None and y is None) or torch.equal(x, y) for x, y in zip(a[1], b[1], strict=True)) and a[2:] == b[2:]
    )


def disturb(module):
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    random.seed(99)
    module.train()
    module.inner(torch.randn(5, 2))  # BatchNorm's statistics
    module.calls.fill_(3.0)
    module.inner[1].running_var = torch.zeros(3)  # another tensor altogether
    for parameter in module.parameters():
        parameter.requires_grad_(not parameter.requires_grad)
    with torch.enable_grad():
        module.inner.requires_grad_(True)
        module.inner(torch.randn(5, 2)).square().sum().backward()
    module.zero_grad(set_to_none=False)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_training_state_is_restored_also_after_an_exception(error):
    def outcome(disturbing):
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002
        random.seed(5)
        module = Part()
        buffer = module.inner[1].running_var
        if disturbing:
            with pytest.raises(error) if error else nullcontext(), preserve_training_state(module):
                disturb(module)
                if error:
                    raise error
        assert module.inner[1].running_var is buffer
        return everything(module)

    assert same(outcome(True), outcome(False))


def test_everything_of_a_training_state_is_compared():
    torch.manual_seed(5)
    reference = everything(Part())
    torch.manual_seed(5)
    module = Part()
    disturb(module)
    found = everything(module)
    for index in range(4):
        mixed = tuple(found[i] if i == index else reference[i] for i in range(4))
        assert not same(mixed, reference)


def test_training_state_inside_is_eval_mode_without_gradients():
    module = Part()
    with preserve_training_state(module):
        assert not any(part.training for part in module.modules())
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    assert module.training
    assert not module.inner[2].training


def test_accumulated_gradients_survive_a_backward_pass():
    module = Part()
    before = [None if p.grad is None else (p.grad, p.grad.clone()) for p in module.parameters()]
    with preserve_training_state(module), torch.enable_grad():
        module.inner(torch.randn(4, 2)).sum().backward()
    for parameter, kept in zip(module.parameters(), before, strict=True):
        assert parameter.grad is (kept and kept[0])
        assert kept is None or torch.equal(parameter.grad, kept[1])


def test_gradients_can_be_turned_on_inside_inference_mode():
    module = Part()
    with torch.inference_mode():
        with preserve_training_state(module), torch.enable_grad():
            x = torch.ones(4, 2, requires_grad=True)
            (gradient,) = torch.autograd.grad(module.inner[0](x).sum(), x)
            assert torch.equal(gradient, module.inner[0].weight.sum(0).expand(4, 2))
        assert torch.is_inference_mode_enabled()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_random_states_of_every_gpu_are_restored():
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    torch.cuda.manual_seed_all(3)
    expected = [torch.rand(4, device=device) for device in devices]
    torch.cuda.manual_seed_all(3)
    with preserve_training_state(nn.Linear(1, 1)):
        for device in devices:
            torch.rand(100, device=device)
    assert all(torch.equal(torch.rand(4, device=d), e) for d, e in zip(devices, expected, strict=True))


class Holder:
    def __init__(self):
        self.count, self.items, self.part = 1, {"a": 1}, Plain()


class Plain:
    def __init__(self):
        self.seen = ["a"]


def test_remember_attributes_puts_back_what_is_held():
    holder = Holder()
    part, put_back = holder.part, remember_attributes(holder)
    part.seen.append("b")
    holder.items.clear()
    holder.count, holder.part, holder.new = 2, Plain(), 3
    put_back()
    assert (holder.count, holder.items, holder.part, part.seen) == (1, {"a": 1}, part, ["a"])
    assert not hasattr(holder, "new")
