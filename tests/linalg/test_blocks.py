# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.joint_spectra import symmetric
from torch.testing import assert_close

from genmonitor.linalg import blocks, chunking
from genmonitor.linalg.blocks import Blocks, SymmetricBlocks


@pytest.mark.parametrize("budget", [10**9, 10**5, 0])
def test_blocks_give_all_rows_whether_kept_or_not(monkeypatch, budget):
    monkeypatch.setattr(blocks, "gram_budget", lambda device: budget)
    matrix, made = torch.randn(1500, 20), []
    found = Blocks([(0, 700), (700, 1500)], lambda a, b: made.append(a) or matrix[a:b])
    for _ in range(3):
        rows = list(found)
        assert torch.equal(torch.cat([block for _, _, block in rows]), matrix)
        assert all(len(block) == b - a <= 512 for a, b, block in rows)
    assert found.all_kept == (len(made) == 2) == (budget == 10**9)


def test_the_budget_is_a_third_of_the_memory():
    assert 2**26 < blocks.gram_budget(torch.device("cpu")) < 2**45


@pytest.mark.parametrize("size", [1, 600, 1300])
@pytest.mark.parametrize("budget", [10**9, 10**6])
def test_a_symmetric_matrix_by_its_upper_triangle(monkeypatch, size, budget):
    monkeypatch.setattr(blocks, "gram_budget", lambda device: budget)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 10**7)
    matrix, weights = symmetric(size), symmetric(size)[:, :1]
    found = SymmetricBlocks(size, matrix, lambda a, b: matrix[a:b, a:])
    v = torch.randn(size, 3, dtype=torch.float64)
    assert_close(found.product(v), matrix @ v)
    assert torch.equal(found.whole(), matrix)
    product = weights * matrix
    assert_close(
        torch.tensor(found.moments(weights), dtype=torch.float64),
        torch.stack([product.trace(), (product @ product).trace()]),
    )
