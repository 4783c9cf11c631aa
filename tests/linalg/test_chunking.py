# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.joint_spectra import symmetric
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import SymmetricBlocks, float64_sum, in_cache, row_blocks, rows_in_cache


@settings(max_examples=50, deadline=None, derandomize=True)
@given(rows=st.integers(1, 1000), columns=st.none() | st.integers(1, 200), budget=st.integers(1, 10_000))
def test_row_blocks_cover_the_rows_once_within_the_budget(rows, columns, budget):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "MEMORY_BUDGET", budget)
        blocks = list(row_blocks(rows, 4, columns))
    assert [row for start, stop in blocks for row in range(start, stop)] == list(range(rows))
    assert all(stop - start == 1 or (stop - start) * 4 * (columns or rows) <= budget for start, stop in blocks)


def test_in_cache_covers_everything_once():
    slices = list(in_cache(10, bytes_each=3, cache=8))
    assert [i for some in slices for i in range(10)[some]] == list(range(10))
    assert max(some.stop - some.start for some in slices) == 2


def test_rows_in_cache_fit_and_are_never_none():
    assert rows_in_cache(torch.zeros(3, 1024)) == chunking.CACHE // 4096
    assert rows_in_cache(torch.zeros(1, chunking.CACHE)) == 1
    assert rows_in_cache(torch.zeros(3, 1024, device="meta")) == chunking.MEMORY_BUDGET // 4096


@pytest.fixture(params=[2**20, 40, 1])
def at_once(request, monkeypatch):
    """All at once, some rows, one row."""
    monkeypatch.setattr(chunking, "AT_ONCE", request.param)


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


@pytest.mark.parametrize("size", [1, 600, 1300])
@pytest.mark.parametrize("budget", [10**9, 10**6])
def test_a_symmetric_matrix_by_its_upper_triangle(monkeypatch, size, budget):
    monkeypatch.setattr(chunking, "HELD", budget)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 10**7)
    matrix, made = symmetric(size), []
    found = SymmetricBlocks(size, matrix, lambda a, b: made.append(a) or matrix[a:b, a:])
    v = torch.randn(size, 3, dtype=torch.float64)
    for _ in range(3):
        assert_close(found.product(v), matrix @ v)
    assert torch.equal(found.whole(), matrix)
    assert (len(made) == len({*made})) == (budget == 10**9 or size == 1)  # all are kept
