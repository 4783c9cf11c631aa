# SPDX-License-Identifier: Apache-2.0
"""The ways to the same spectrum: dense or Krylov, Gram matrix or explicit features."""

import pytest
import torch
from _helpers.joint_spectra import KERNELS, digit_sides, ends_of, random_sides, symmetric
from torch.testing import assert_close

from genmonitor import CosineKernel, GaussianKernel
from genmonitor.functional import joint_spectrum, prompt_split
from genmonitor.linalg.spectrum import Space, outermost


@pytest.fixture(scope="module")
def dense():
    return prompt_split(*digit_sides(), **KERNELS)


@pytest.fixture
def never_dense(monkeypatch):
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)


def test_krylov_finds_what_the_dense_form_finds(never_dense, dense):
    found = prompt_split(*digit_sides(), **KERNELS)
    assert_close(found.eigenvalues, dense.eigenvalues, rtol=0, atol=1e-9)
    assert_close(found.scores, dense.scores, rtol=0, atol=1e-6)
    assert_close(found.reference_scores, dense.reference_scores, rtol=0, atol=1e-6)
    assert found.residuals.max() < 1e-7
    assert float(found.total) == pytest.approx(float(dense.total), rel=1e-6)
    assert abs(found.similar.eigenvalues) < 0.1 * found.eigenvalues[0]


def test_krylov_in_float32(never_dense, dense):
    found = prompt_split(*(side.float() for side in digit_sides()), **KERNELS)
    assert_close(found.eigenvalues, dense.eigenvalues, rtol=0, atol=1e-7)
    assert found.residuals.max() < 1e-6


@pytest.mark.parametrize("kernel", [GaussianKernel(0.05), CosineKernel()])
def test_covariances_of_features(monkeypatch, kernel):
    sides = digit_sides()
    arguments = {"output_kernel": kernel, "prompt_kernel": kernel, "num_features": 150, "num_modes": 6}
    whole = prompt_split(*sides, **arguments)
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 0)
    ends = prompt_split(*sides, **arguments)
    assert_close(ends.eigenvalues, whole.eigenvalues, rtol=0, atol=1e-9)
    assert_close(ends.scores, whole.scores, rtol=0, atol=1e-6)
    assert_close(ends.total, whole.total, rtol=1e-9, atol=0)


def test_a_residual_bounds_the_distance_to_an_eigenvalue(never_dense, monkeypatch):
    monkeypatch.setattr(joint_spectrum, "MAX_BLOCKS", 3)  # far from converged
    found = prompt_split(*digit_sides(), **KERNELS)
    monkeypatch.setattr(joint_spectrum, "DENSE_LIMIT", 2048)
    whole = prompt_split(*digit_sides(), **KERNELS, num_modes=1000).eigenvalues
    distance = (found.eigenvalues[:, None] - whole).abs().amin(1)
    assert (distance <= found.residuals).all()
    assert found.residuals.max() > 1e-5


def test_it_stops_once_the_residuals_are_small():
    matrix = torch.diag(torch.cat([torch.tensor([9.0, -8.0, 7.0, -6.0]), torch.linspace(-1e-3, 1e-3, 996)]).double())
    space = ends_of(matrix, count=2)
    wanted = outermost(space.values, 2)
    assert space.vectors.shape[1] <= 5 * 8
    assert_close(space.values[wanted], torch.tensor([9.0, 7.0, -6.0, -8.0]).double(), rtol=0, atol=1e-9)
    assert space.quotients(space.coefficients[:, wanted])[1].max() < 9e-6


def test_an_exhausted_space_is_whole():
    matrix = symmetric(50)
    space = ends_of(matrix, count=50, columns=60)
    assert space.vectors.shape[1] == 50
    assert_close(space.values, torch.linalg.eigvalsh(matrix), rtol=0, atol=1e-9)


def test_a_low_rank_matrix_exhausts_early():
    factor = symmetric(60)[:, :5]
    matrix = factor @ torch.diag(torch.tensor([1.0, -1, 2, -2, 3]).double()) @ factor.T
    space = ends_of(matrix, count=7)
    values = space.values
    expected = torch.linalg.eigvalsh(matrix)
    assert_close(values[outermost(values, 2)], expected[outermost(expected, 2)], rtol=1e-9, atol=0)
    assert space.vectors.shape[1] < 60


def test_the_basis_is_orthonormal_in_its_inner_product():
    factor = symmetric(300)
    gram, weights = factor @ factor.T / 300, torch.randn(300, 1, generator=torch.Generator().manual_seed(0)).double()
    start = torch.randn(300, 10, generator=torch.Generator().manual_seed(1)).double()
    space = Space.ends(lambda v: gram @ v, lambda v: weights * v, 2e-16, start, 4, max_blocks=32)
    assert_close(space.images, gram @ space.vectors, rtol=0, atol=1e-9)
    identity = torch.eye(space.vectors.shape[1]).double()
    assert_close(space.vectors.T @ space.images, identity, rtol=0, atol=1e-9)
    expected = torch.linalg.eigvals(weights * gram).real
    values = space.values
    assert_close(values[outermost(values, 4)], expected[outermost(expected, 4)], rtol=0, atol=1e-8)


def test_more_modes_than_a_block_has_columns(never_dense):
    sides = random_sides(200, 150)
    found = prompt_split(*sides, num_modes=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_spectrum, "DENSE_LIMIT", 2048)
        expected = prompt_split(*sides, num_modes=60)
    assert_close(found.eigenvalues, expected.eigenvalues, rtol=0, atol=1e-8)


def test_krylov_repeats_itself_and_moves_no_random_state(never_dense):
    state = torch.get_rng_state()
    first, second = (prompt_split(*random_sides(50, 40)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.eigenvalues, second.eigenvalues)
    assert torch.equal(first.total, second.total)
    assert torch.equal(first.scores, second.scores)
