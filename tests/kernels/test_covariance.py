# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers import entropy_references as twin
from _helpers import references as ref

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel
from genmonitor.kernels import covariance as kernel_matrices
from genmonitor.kernels.covariance import (
    add_moments,
    check_kernels,
    covariance,
    feature_map,
    gram_matrix,
    random_features,
)
from genmonitor.linalg import chunking
from genmonitor.linalg.spectrum import psd_eigenvalues


def draw(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dim", [1, 2, 15, 16, 17, 100, 129])
def test_moments_are_those_of_the_features(dim):
    x = draw(20, dim)
    products = torch.zeros(dim, dim, dtype=torch.float64)
    total = add_moments(products, [x], [feature_map(CosineKernel(), dim, None, 0)])
    phi = torch.from_numpy(twin.unit(x.numpy()))
    torch.testing.assert_close(products, phi.T @ phi)
    torch.testing.assert_close(total, phi.sum(0))


@pytest.mark.parametrize("setting", [(kernel_matrices, "CHUNK_ROWS", 7), (chunking, "MEMORY_BUDGET", 4 * 8 * 9 * 3)])
def test_chunks_of_samples_change_nothing(monkeypatch, setting):
    x, t = draw(40, 4), draw(40, 5, seed=1)
    maps = [feature_map(CosineKernel(), 4, None, 0), feature_map(CosineKernel(), 5, None, 0)]
    whole = covariance([x, t], maps)
    monkeypatch.setattr(*setting)
    torch.testing.assert_close(covariance([x, t], maps), whole)


@pytest.mark.parametrize("dim", [3, 511, 512, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_are_float64_however_many_features_there_are(dim, dtype):
    """The small eigenvalues decide on entropies of a small order, and float32 products would bury them."""
    x = draw(40, dim).to(dtype)
    maps = [feature_map(CosineKernel(), dim, None, 0)]
    torch.testing.assert_close(covariance([x], maps), covariance([x.double()], maps), rtol=0, atol=0)


def test_many_chunks_are_summed_without_loss(monkeypatch):
    """N additions are off by at most N roundings of the sum of magnitudes, in whatever order a processor adds them."""
    monkeypatch.setattr(kernel_matrices, "CHUNK_ROWS", 16)
    dim, copies = 512, 600
    x = draw(16, dim).float()
    products = torch.zeros(dim, dim, dtype=torch.float64)
    total = add_moments(products, [x.repeat(copies, 1)], [feature_map(CosineKernel(), dim, None, 0)])
    phi = torch.from_numpy(twin.unit(x.double().numpy()))
    roundings = (16 * copies + 2 * dim) * torch.finfo(torch.float64).eps  # those of the norms too
    assert bool(((products / copies - phi.T @ phi).abs() <= roundings * phi.abs().T @ phi.abs()).all())
    assert bool(((total / copies - phi.sum(0)).abs() <= roundings * phi.abs().sum(0)).all())


@pytest.mark.parametrize(("dim", "n"), [(3, 50_000), (64, 20_000), (511, 6_000), (512, 6_000), (600, 6_000)])
def test_copies_of_a_few_samples_have_as_many_eigenvalues(dim, n):
    """The rest is rounding and below the floor."""
    k = min(dim - 1, 5)
    x = (1 + draw(k, dim)).float().repeat(n // k, 1)
    matrix = covariance([x], [feature_map(CosineKernel(), dim, None, 0)])
    eigenvalues = psd_eigenvalues(matrix)
    assert int((eigenvalues > 0).sum()) == k


def test_sides_stand_one_after_the_other():
    x, t = draw(30, 3), draw(30, 2, seed=1)
    kernel = GaussianKernel(0.2)
    found = covariance([x, t], [feature_map(kernel, 3, 4, 5), feature_map(CosineKernel(), 2, 4, 5)])
    frequencies = random_features(GaussianKernel(0.2), 3, 4, 5).frequencies.double().numpy()
    phi = torch.from_numpy(twin.fourier(x.numpy(), frequencies))
    both = torch.cat([phi, torch.from_numpy(twin.unit(t.numpy()))], 1)
    torch.testing.assert_close(found, both.T @ both / 30)


@pytest.mark.parametrize("kernel", [GaussianKernel(0.4), LaplacianKernel(0.4)])
def test_random_features_have_norm_one_and_the_kernel_as_mean(kernel):
    x = draw(6, 3)
    phi = random_features(kernel, 3, 20_000, 0)(x)
    assert phi.shape == (6, 40_000)
    torch.testing.assert_close(phi.square().sum(1), torch.ones(6, dtype=torch.float64))
    # an entry is a mean of 20,000 cosines: standard error below 0.0071 = 1 / sqrt(20,000)
    assert (phi @ phi.T - kernel(x, x)).abs().max() < 4 * 0.0071


def test_feature_map_depends_on_its_seed_alone():
    state = torch.get_rng_state()
    first, again, other = (feature_map(GaussianKernel(1.0), 3, 4, seed) for seed in (1, 1, 2))
    assert torch.equal(first.frequencies, again.frequencies)
    assert not torch.equal(first.frequencies, other.frequencies)
    assert first.size == 8
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_gram_matrix(monkeypatch, rows):
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", rows * 4 * 8 * 11)
    x = draw(11, 3)
    array = x.numpy()
    cases = {
        GaussianKernel(0.3): ref.gram(array, array, 0.3),
        LaplacianKernel(0.3): ref.gram(array, array, 0.3, "laplacian"),
        CosineKernel(): twin.unit(array) @ twin.unit(array).T,
    }
    for kernel, expected in cases.items():
        torch.testing.assert_close(gram_matrix(x, kernel), torch.from_numpy(expected))
    random = feature_map(GaussianKernel(0.3), 3, 6, 0)
    phi = twin.fourier(array, random.frequencies.double().numpy())
    torch.testing.assert_close(gram_matrix(x, GaussianKernel(0.3), random), torch.from_numpy(phi @ phi.T))


def test_float32_far_from_zero():
    x = (100 + draw(50, 128) / 100).float()
    expected = ref.gram(x.double().numpy(), x.double().numpy(), 40.0)
    torch.testing.assert_close(gram_matrix(x, GaussianKernel(40.0)), torch.from_numpy(expected), rtol=0, atol=1e-8)


def test_kernels_that_have_no_features_are_refused():
    assert check_kernels(None, kernel=None, prompt_kernel=GaussianKernel()) == [CosineKernel(), GaussianKernel()]
    assert check_kernels(5, kernel=None, prompt_kernel=GaussianKernel()) == [CosineKernel(), GaussianKernel()]
    with pytest.raises(ValueError, match=r"`prompt_kernel` to be a kernel such as CosineKernel.., but got 3"):
        check_kernels(None, kernel=None, prompt_kernel=3)
    with pytest.raises(ValueError, match=r"GaussianKernel with `num_features`=5, but got CosineKernel.*Leave"):
        check_kernels(5, kernel=None)
    assert check_kernels(5, kernel=LaplacianKernel()) == [LaplacianKernel()]
    with pytest.raises(ValueError, match="`num_features` to be a whole number >= 1, but got 0"):
        check_kernels(0, kernel=GaussianKernel())
