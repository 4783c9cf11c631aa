# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import in_cache, row_blocks, rows_in_cache


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
