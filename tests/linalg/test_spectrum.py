# SPDX-License-Identifier: Apache-2.0
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genmonitor.linalg.spectrum import entropy, inverse_root, psd_eigenvalues, unnormalized_entropy

ORDERS = [0.3, 1.0, 2.0, 5.5, math.inf]


def psd(eigenvalues: list[float], seed: int = 0) -> torch.Tensor:
    """A symmetric matrix with these eigenvalues in random directions."""
    generator = torch.Generator().manual_seed(seed)
    d = len(eigenvalues)
    basis = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    return basis @ torch.diag(double(eigenvalues)) @ basis.T


def double(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), rtol=1e-12, atol=1e-12)


def test_eigenvalues_rise_and_rounding_is_exactly_zero():
    found = psd_eigenvalues(psd([0.0, 0.5, 0.0, 0.2, 0.3]))
    close(found, [0, 0, 0.2, 0.3, 0.5])
    assert (found[:2] == 0).all()


def test_small_eigenvalues_survive_exact_products():
    matrix = psd([1e-9, 1.0])
    assert psd_eigenvalues(matrix)[0] == pytest.approx(1e-9, rel=1e-5)
    assert psd_eigenvalues(matrix, rounding=1e-7)[0] == 0
    assert psd_eigenvalues(matrix.float())[0] == 0  # its entries were rounded at 1e-7
    assert psd_eigenvalues(matrix.float()).dtype == torch.float64


def test_rounding_of_a_part_is_relative_to_the_whole():
    part, whole = psd([1e-9, 1e-5]), psd([0.4, 0.6])
    assert (psd_eigenvalues(part, 1e-7) > 0).all()
    assert (psd_eigenvalues(part, 1e-7, whole) > 0).tolist() == [False, True]


@pytest.mark.parametrize("order", ORDERS)
def test_entropy_of_equal_eigenvalues_is_their_log_number(order):
    close(entropy(double([0.0, 3.0, 3.0, 0.0, 3.0]), order), math.log(3))
    close(entropy(double([1.0, 0.0]), order), 0.0)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (1.0, -(0.7 * math.log(0.7) + 0.2 * math.log(0.2) + 0.1 * math.log(0.1))),
        (2.0, -math.log(0.49 + 0.04 + 0.01)),
        (0.5, 2 * math.log(0.7**0.5 + 0.2**0.5 + 0.1**0.5)),
        (math.inf, -math.log(0.7)),
    ],
)
def test_entropy_by_its_formula(order, expected):
    close(entropy(double([0.7, 0.2, 0.1, 0.0]), order), expected)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(weights=st.lists(st.floats(1e-6, 1), min_size=1, max_size=8))
def test_entropy_falls_in_the_order_and_is_continuous_at_one(weights):
    p = double(weights)
    values = [float(entropy(p, order)) for order in (0.1, 0.5, 1.0, 1.5, 2.0, 10.0, 1000.0, math.inf)]
    assert all(low <= high + 1e-12 for high, low in itertools.pairwise(values))
    assert values[-1] >= -1e-12
    assert values[0] <= math.log(len(weights)) + 1e-12
    for near in (1 - 1e-6, 1 + 1e-6, 1 + 1e-12):
        assert float(entropy(p, near)) == pytest.approx(values[2], abs=1e-4)


@pytest.mark.parametrize("order", [0, -1.0, math.nan, True, "2", None])
def test_order_must_be_positive(order):
    with pytest.raises(ValueError, match=r"Expected `order` to be a positive number or math\.inf, but got"):
        entropy(torch.ones(2), order)


def test_unnormalized_entropy_is_weighted_by_the_mass():
    p = double([0.6, 0.4, 0.0])
    close(unnormalized_entropy(0.25 * p), 0.25 * float(entropy(p)))
    close(unnormalized_entropy(p), float(entropy(p)))
    assert unnormalized_entropy(torch.zeros(3)) == 0


@pytest.mark.parametrize("eigenvalues", [[0.1, 0.2, 0.7], [0.0, 0.2, 0.0, 0.8], [1e-5, 1e-3, 0.4, 0.6], [1.0]])
def test_inverse_root(eigenvalues):
    """Both ways, with a Cholesky factor (no eigenvalue cut off) and with eigenvectors."""
    matrix = psd(eigenvalues)
    for rcond in (1e-2, 1e-4, 1e-12):
        root = inverse_root(matrix, rcond)
        expected = np.linalg.pinv(matrix.numpy(), rcond, hermitian=True)
        assert np.abs((root @ root.T).numpy() / np.abs(expected).max() - expected / np.abs(expected).max()).max() < 1e-9
        assert root.shape[1] == sum(value > rcond * max(eigenvalues) for value in eigenvalues)


def test_inverse_root_by_cholesky_only_where_nothing_is_cut(monkeypatch):
    calls = []
    original = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix: calls.append(1) or original(matrix))
    for smallest, rcond, expected in ((0.2, 0.1, 0), (0.05, 0.1, 1)):
        calls.clear()
        inverse_root(psd([smallest, 0.8]), rcond)
        assert len(calls) == expected


def test_inverse_root_of_nothing_has_no_columns():
    assert inverse_root(torch.zeros(3, 3).double(), 1e-6).shape == (3, 0)


@pytest.mark.parametrize("rank", [30, 200, 1100])
def test_the_root_of_a_large_matrix_of_any_rank(rank):
    """Of low rank it goes by a random subspace, which is enlarged where the first is too small."""
    factor = torch.randn(1100, rank, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = factor @ factor.T / rank
    root = inverse_root(matrix, rcond=1e-6)
    assert root.shape[1] == torch.linalg.matrix_rank(matrix, hermitian=True, rtol=1e-6)
    projection = matrix @ root @ root.T
    torch.testing.assert_close(projection @ matrix, matrix, rtol=0, atol=1e-6)
    torch.testing.assert_close(projection, projection.T, rtol=0, atol=1e-6)
