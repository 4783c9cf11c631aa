# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _helpers import references as ref

from genmonitor import CosineKernel, GaussianKernel, LaplacianKernel, PixelPartition
from genmonitor.functional.kernel_means import kernel_dispersion, kernel_means
from genmonitor.kernels.views import Structure
from genmonitor.linalg import chunking

KINDS = {"gaussian": GaussianKernel, "laplacian": LaplacianKernel}
PARTITION = PixelPartition(torch.tensor([[1, 2, 3], [1, 1, 3]]))


def draw(n: int, d: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def images(n: int, seed: int = 0) -> torch.Tensor:
    return draw(n, seed=seed).view(n, 1, 2, 3)


def means_by_loop(x, y, gamma, kind, rows, columns):
    """Mean of the kernel for each pair of a block of `rows` and a block of `columns`."""
    cut_x, cut_y = np.split(x, len(x) // rows), np.split(y, len(y) // columns)
    return [[ref.gram(a, b, gamma, kind).mean() for b in cut_y] for a in cut_x]


@pytest.mark.parametrize("budget", [chunking.MEMORY_BUDGET, 1, 3000])
@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_means_of_the_whole_and_of_each_region(kind, block, budget, monkeypatch):
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    fake, real = images(15), images(20, seed=1)
    means = kernel_means(fake, real, KINDS[kind](0.2), partition=PARTITION, block_size=block)
    assert (means.fake_block, means.real_block) == (block or 15, block or 20)
    for index, columns in enumerate([torch.arange(6), *Structure.of(fake, PARTITION).columns]):
        x, y = (side.flatten(1)[:, columns].numpy() for side in (fake, real))
        across = means_by_loop(x, y, 0.2, kind, means.fake_block, means.real_block)
        within = [
            np.diag(means_by_loop(side, side, 0.2, kind, size, size))
            for side, size in ((x, means.fake_block), (y, means.real_block))
        ]
        np.testing.assert_allclose(means.across[index], across, rtol=1e-12)
        np.testing.assert_allclose(means.within_fake[index], within[0], rtol=1e-12)
        np.testing.assert_allclose(means.within_real[index], within[1], rtol=1e-12)


@pytest.mark.parametrize("n", [2, 7, 8, 9, 17])
def test_without_the_diagonal(n):
    x = draw(n)
    means = kernel_means(x, x, GaussianKernel(0.2)).without_diagonal()
    expected = ref.squared_norm(x.numpy(), 0.2, "gaussian", unbiased=True)
    assert float(means.within_fake[0, 0]) == pytest.approx(expected, rel=1e-12)
    assert float(means.within_real[0, 0]) == pytest.approx(expected, rel=1e-12)
    assert float(means.across[0, 0, 0]) > expected


def test_the_regions_cost_the_whole_nothing_but_rounding():
    fake, real = images(15), images(20, seed=1)
    alone = kernel_means(fake, real, GaussianKernel(0.2))
    beside = kernel_means(fake, real, GaussianKernel(0.2), partition=PARTITION)
    for name in ("across", "within_fake", "within_real"):
        torch.testing.assert_close(getattr(beside, name)[:1], getattr(alone, name))


def test_the_cosine_kernel_is_not_shifted():
    fake, real = 3 + draw(8), 3 + draw(9, seed=1)
    means = kernel_means(fake, real, CosineKernel())
    unit = [side / side.norm(dim=1, keepdim=True) for side in (fake, real)]
    assert float(means.across) == pytest.approx(float((unit[0] @ unit[1].T).mean()))
    assert float(means.within_fake) == pytest.approx(float((unit[0] @ unit[0].T).mean()))


def test_columns_of_the_regions_in_the_order_of_their_names():
    partition = PixelPartition(torch.tensor([[2, 1], [0, 1]]))
    columns = Structure.of(torch.zeros(3, 2, 2, 2), partition).columns
    assert [c.tolist() for c in columns] == [[1, 3, 5, 7], [0, 4], [2, 6]]
    assert list(partition.regions()) == ["cluster_1", "cluster_2", "constant"]
    assert torch.equal(Structure.of(torch.zeros(3, 2, 2, 2), None).columns[0], torch.arange(8))


def features(n, seed=0):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dispersion(gram):
    n = len(gram)
    return np.mean([1 - gram[i, j] for i in range(n) for j in range(n) if i != j])


@pytest.mark.parametrize("budget", [chunking.MEMORY_BUDGET, 500])
def test_twin(budget, monkeypatch):
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", budget)
    x, n = features(12), 12
    gram = ref.gram(x.numpy(), x.numpy(), 0.3)
    value, others = dispersion(gram), [[j for j in range(n) if j != i] for i in range(n)]
    left_out = np.array([dispersion(gram[np.ix_(rest, rest)]) for rest in others])
    found = kernel_dispersion(x, GaussianKernel(0.3))
    assert float(found.value) == pytest.approx(value)
    assert found.influence.tolist() == pytest.approx((n - 1) * (left_out.mean() - left_out))
    assert float(found.standard_error) == pytest.approx(
        np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    )


def test_the_same_samples_are_not_spread():
    found = kernel_dispersion(torch.tensor([[0.3, 0.7, 0.1]]).expand(50, -1), CosineKernel())
    assert float(found.value) == pytest.approx(0, abs=1e-6)
    assert float(found.standard_error) == pytest.approx(0, abs=1e-6)


def test_orthogonal_samples_are_one_apart():
    assert float(kernel_dispersion(torch.eye(5), CosineKernel()).value) == 1


def test_value_has_no_bias_and_its_error_is_what_it_varies_by():
    found = [kernel_dispersion(features(30, seed), GaussianKernel(0.1)) for seed in range(400)]
    values = torch.stack([one.value for one in found])
    # E exp(-g |x - y|²) of standard normal samples is (1 + 4 g)^(-D/2); the mean of 400 varies by 1/20 of one
    assert float(values.mean()) == pytest.approx(1 - 1.4**-1.5, abs=4 * float(values.std()) / 20)
    # a standard deviation of 400 values is known to 1 / sqrt(800) = 4 %; the jackknife is a little too large
    assert float(torch.stack([one.standard_error for one in found]).mean()) == pytest.approx(
        float(values.std()), rel=0.2
    )
