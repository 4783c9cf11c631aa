# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from _helpers.golden import FAKE, GAMMA, REAL, digits, partition

from genmonitor import CosineKernel, CosineMeanSimilarity, GaussianKernel, PixelPartition
from genmonitor.functional import cosine_mean_similarity


def draw(n: int, *shape: int, seed: int = 0, shift: float = 0.0) -> torch.Tensor:
    return shift + torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fed(metric, fake, real, batch: int):
    for name, side in (("real", real), ("fake", fake)):
        for samples in side.split(batch):
            metric.update(samples, real=name == "real")
    return metric


@pytest.mark.parametrize("batch", [300, 97, 1])
@pytest.mark.parametrize("options", [{"partition": partition()}, {"block_size": 150}])
def test_it_is_the_function(options, batch):
    options = options | {"kernel": GaussianKernel(GAMMA)}
    fake, real = digits()[FAKE], digits()[REAL]
    metric = fed(CosineMeanSimilarity(**options), fake, real, batch)
    torch.testing.assert_close(metric.compute(), cosine_mean_similarity(fake, real, **options), rtol=0, atol=0)


@pytest.mark.parametrize("batch", [1, 7, 1500])
def test_gamma_is_of_the_first_1000_real_samples(batch):
    real = torch.cat([draw(1000, 2), draw(500, 2, seed=1, shift=50)])
    metric = fed(CosineMeanSimilarity(), draw(20, 2), real, batch)
    assert metric.kernel == GaussianKernel()  # open until the first compute
    metric.compute()
    assert metric.kernel == GaussianKernel().resolved(real[:1000])


def test_gamma_stays_across_resets():
    metric = fed(CosineMeanSimilarity(), draw(20, 2), draw(30, 2, seed=1), 10)
    metric.compute()
    kernel = metric.kernel
    metric.reset()
    value = fed(metric, draw(20, 2), 5 * draw(30, 2, seed=2), 10).compute()
    assert metric.kernel == kernel
    assert float(value) == pytest.approx(
        float(cosine_mean_similarity(draw(20, 2), 5 * draw(30, 2, seed=2), kernel=kernel))
    )


def test_a_kernel_without_width_leaves_gamma_open():
    metric = fed(CosineMeanSimilarity(kernel=CosineKernel()), draw(20, 2), draw(30, 2, seed=1), 10)
    expected = cosine_mean_similarity(draw(20, 2), draw(30, 2, seed=1), kernel=CosineKernel())
    assert float(metric.compute()) == pytest.approx(float(expected))
    assert metric.gamma.isnan()


def test_forward_compares_a_batch_with_the_real_side_so_far():
    real, fake = draw(30, 3), draw(20, 3, seed=1)
    metric = CosineMeanSimilarity()
    assert metric(real[:12], real=True) is None
    first = metric(fake[:8], real=False)
    assert metric.kernel == GaussianKernel()  # more real samples may come
    assert metric(real[12:], real=True) is None
    second = metric(fake[8:], real=False)
    assert float(first) == pytest.approx(float(cosine_mean_similarity(fake[:8], real[:12])))
    assert float(second) == pytest.approx(float(cosine_mean_similarity(fake[8:], real)))
    assert float(metric.compute()) == pytest.approx(float(cosine_mean_similarity(fake, real)))


def test_a_forward_that_fails_leaves_the_metric_as_after_update():
    metric = CosineMeanSimilarity()
    with pytest.raises(ValueError, match="real samples before `compute`"):
        metric(draw(8, 3), real=False)
    metric(draw(30, 3, seed=1), real=True)
    with pytest.raises(ValueError, match="`fake` to hold at least 2"):
        metric(draw(1, 3, seed=2), real=False)
    fake = torch.cat([draw(8, 3), draw(1, 3, seed=2)])
    assert float(metric.compute()) == pytest.approx(float(cosine_mean_similarity(fake, draw(30, 3, seed=1))))


def test_what_is_refused():
    metric = CosineMeanSimilarity(PixelPartition.grid((2, 2), 1, 2))
    with pytest.raises(ValueError, match="`real samples` of size 2×2 like the partition"):
        metric.update(draw(3, 1, 4, 4), real=True)
    metric.update(draw(3, 1, 2, 2), real=True)
    with pytest.raises(ValueError, match=r"`fake samples` of shape \[N, 1, 2, 2\]"):
        metric.update(draw(3, 2, 2, 2), real=False)
    with pytest.raises(ValueError, match="fake samples before `compute`, but got none"):
        metric.compute()
    blocks = fed(CosineMeanSimilarity(block_size=3), draw(4, 2), draw(6, 2), 6)
    with pytest.raises(ValueError, match=r"number of fake samples to be a multiple of `block_size`=3, but got 4"):
        blocks.compute()
