# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.linalg import sums
from genmonitor.linalg.sums import float64_sum


@pytest.fixture(params=[2**20, 40, 1])
def at_once(request, monkeypatch):
    """All at once, some rows, one row."""
    monkeypatch.setattr(sums, "AT_ONCE", request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(7, 5), (7, 3, 5), (7, 0), (0, 5), (7,)], ids=str)
def test_sums_are_those_of_float64_values(at_once, dtype, shape):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    for dim in (None, *range(len(shape))):
        found, expected = float64_sum(x, dim), x.double().sum(dim)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, expected, rtol=1e-15, atol=0)


def test_what_float32_would_lose_is_kept(at_once):
    x = torch.ones(10, 1000)
    x[0, 0] = 2.0**24
    assert float64_sum(x) == 2**24 + 9999


def test_gradients_pass(at_once):
    x = torch.ones(7, 5, requires_grad=True)
    float64_sum(x, 1).square().sum().backward()
    assert x.grad.tolist() == [[10.0] * 5] * 7
