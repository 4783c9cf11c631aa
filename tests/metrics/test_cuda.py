# SPDX-License-Identifier: Apache-2.0
"""Every metric gives the same on a GPU as on the CPU."""

import pytest
import torch
from _helpers.citizens import CITIZENS, feed

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def on_cuda(calls):
    return [(tuple(x.cuda() for x in tensors), how) for tensors, how in calls]


def numbers(value):
    """Return the numbers of a value on the CPU, by name where it has several."""
    return {"": value.cpu()} if isinstance(value, torch.Tensor) else {name: x.cpu() for name, x in value.items()}


@pytest.mark.parametrize("name", CITIZENS)
def test_metric_that_moves_to_a_gpu_gives_the_same(name):
    citizen = CITIZENS[name]
    calls = citizen.calls(batch=13)
    expected = numbers(citizen.fed(calls).compute())
    metric = citizen.fed(calls[:1]).cuda()
    found = numbers(feed(metric, on_cuda(calls[1:])).compute())
    for key, value in expected.items():
        assert torch.allclose(found[key].double(), value.double(), rtol=2e-5, atol=2e-6), key


@pytest.mark.parametrize("name", CITIZENS)
def test_tf32_and_autocast_do_not_reach_a_metric(name):
    citizen = CITIZENS[name]
    calls = on_cuda(citizen.calls())
    plain = numbers(feed(citizen.make(**citizen.arguments).cuda(), calls).compute())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cuda", torch.bfloat16):
            fast = numbers(feed(citizen.make(**citizen.arguments).cuda(), calls).compute())
    finally:
        torch.set_float32_matmul_precision(before)
    for key, value in plain.items():
        assert torch.equal(fast[key], value), key
