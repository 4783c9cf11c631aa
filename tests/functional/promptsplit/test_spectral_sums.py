# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.joint_spectra import ends_of, symmetric

from genmonitor.functional.promptsplit.total_estimate import spectral_sums
from genmonitor.linalg.krylov import Space


def squares(x):
    return x.square()


@pytest.mark.parametrize("known", [[], [(lambda x: x, 0.0)]])
def test_sums_over_the_spectrum(known):
    """Of the semicircle law, no eigenvalue of which stands apart; its second moment is what the probes say."""
    matrix = symmetric(400, seed=3) / 400**0.5
    matrix = matrix - matrix.trace() / 400 * torch.eye(400)
    space = ends_of(matrix, count=2, columns=20)
    functions = [squares, torch.abs]
    found, covariance = spectral_sums(space, functions, known)
    expected = torch.stack([f(torch.linalg.eigvalsh(matrix)).sum() for f in functions])
    deviations = covariance.diagonal().sqrt()
    assert (abs(found - expected) < 4 * deviations).all()
    assert (deviations < 0.03 * expected).all()


def test_what_is_known_of_the_spectrum_sharpens_the_sums():
    matrix = symmetric(400, seed=3) / 400**0.5
    space = ends_of(matrix, count=2, columns=20)
    moments = [(lambda x: x, float(matrix.trace())), (squares, float(matrix.square().sum()))]
    found, covariance = spectral_sums(space, [torch.abs, lambda x: 3 * x.square() - x], moments)
    expected = torch.linalg.eigvalsh(matrix).abs().sum()
    alone = spectral_sums(space, [torch.abs])[1]
    assert covariance[0, 0] < 0.2 * alone[0, 0]
    assert abs(found[0] - expected) < 4 * covariance[0, 0].sqrt()
    # what follows from it is exact
    assert float(found[1]) == pytest.approx(3 * moments[1][1] - moments[0][1])
    assert covariance[1, 1] < 1e-20


def test_eigenvalues_that_stand_apart_are_summed():
    apart = torch.tensor([9.0, -8.0, 7.0]).double()
    space = ends_of(torch.diag(torch.cat([apart, torch.linspace(-1e-3, 1e-3, 997).double()])), count=3)
    assert float(spectral_sums(space, [torch.abs])[0]) == pytest.approx(24.5, rel=0.01)
    assert float(spectral_sums(space, [lambda x: x * (x.abs() > 1)])[0]) == pytest.approx(8, rel=1e-9)


def test_a_multiple_eigenvalue_is_counted_by_the_probes():
    """A block of 8 finds 8 of its 300 vectors: summed as if they were all, 8 would be the answer."""
    matrix = torch.diag(torch.tensor([1.0] * 300 + [-1.0] * 100)).double()
    for scale in (1.0, 1e-5):
        space = ends_of(scale * matrix, count=3)
        found, covariance = spectral_sums(space, [lambda x: x.clamp_min(0)])
        assert abs(float(found) / scale - 300) < 4 * float(covariance.sqrt()) / scale + 1e-6
        assert float(covariance.sqrt()) / scale < 10


@pytest.mark.parametrize("partners", [False, True])
def test_shares_are_one_in_the_mean(partners):
    """In the inner product of a Gram matrix, with probes that have it as covariance, or pairs that have it together."""
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(60, 60, generator=generator).double() / 60**0.5
    gram, weights = factor @ factor.T, torch.randn(60, 1, generator=generator).double()
    drawn = torch.randn(60, 4000, generator=generator).double()
    probes, other = (drawn, gram @ drawn) if partners else (factor @ drawn, None)
    space = Space.ends(lambda v: gram @ v, lambda v: weights * v, 2e-16, probes, 60, partners=other)
    shares = space.shares()
    assert shares.shape == (60, 4000)
    assert (abs(shares.mean(1) - 1) < 4.5 * shares.std(1) / 4000**0.5).all()
