# SPDX-License-Identifier: Apache-2.0
import warnings

import pytest
import torch
from _helpers.golden import CKA, CONSTANT, GAMMA, PAIRS, digits

from genmonitor import GaussianKernel, LaplacianKernel, PixelCKA
from genmonitor.functional import pixel_cka
from genmonitor.linalg import chunking


def draw(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).clamp(-2, 2)
    return x + x.roll(1, dims=-1)


def fed(metric: PixelCKA, images: torch.Tensor, sizes: list[int]) -> PixelCKA:
    for batch in images.split(sizes):
        metric.update(batch)
    return metric


@pytest.mark.parametrize("sizes", [[1000], [500, 500], [400, 1, 7, 592], [250] * 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_digits_streamed(dtype, sizes):
    metric = fed(PixelCKA(GaussianKernel(GAMMA)), digits()[:1000].to(dtype), sizes)
    assert not metric.images
    matrix = metric.compute()
    assert [float(matrix[pair]) for pair in PAIRS] == pytest.approx(CKA, abs=1e-6)
    assert (matrix.diagonal() == 0).nonzero().flatten().tolist() == CONSTANT
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-12)


def test_mini_batches_are_the_functions():
    arguments = {"kernel": GaussianKernel(GAMMA), "batch_estimator": 20}
    metric = fed(PixelCKA(**arguments), digits()[:90], [73, 17])
    assert torch.equal(metric.compute(), pixel_cka(digits()[:90], **arguments))


@pytest.mark.parametrize("patch_size", [1, 2])
@pytest.mark.parametrize("shift", [0, 100])
def test_streaming_agrees_with_all_at_once(shift, patch_size):
    images = shift + draw(90, 1, 4, 4)
    kernel = GaussianKernel(0.001)
    metric = fed(PixelCKA(kernel, patch_size=patch_size), images, [40, 50])
    assert metric.product_sum.ndim == 2
    exact = pixel_cka(images - shift, kernel=kernel, patch_size=patch_size, tolerance=1e-9)
    assert (metric.compute() - exact).abs().max() < 1e-6


def test_the_state_does_not_grow_with_the_images():
    metric = PixelCKA(GaussianKernel(0.01))
    sizes = []
    for seed in range(3):
        metric.update(draw(50, 1, 3, 3, seed=seed))
        sizes.append(sum(state.numel() for state in metric.metric_state.values() if isinstance(state, torch.Tensor)))
    assert len(set(sizes)) == 1
    assert int(metric.count) == 150


def test_the_first_update_sets_gamma():
    images = draw(60, 1, 3, 3)
    metric = fed(PixelCKA(), images, [20, 40])
    gamma = GaussianKernel().resolved(images[:20].flatten(1)).gamma
    assert float(metric.gamma) == gamma
    exact = pixel_cka(images, kernel=GaussianKernel(gamma))
    assert (metric.compute() - exact).abs().max() < 2e-6


@pytest.mark.parametrize("kernel", [LaplacianKernel(0.1), GaussianKernel(50.0), LaplacianKernel()])
def test_images_are_kept_where_features_do_not_serve(kernel):
    images = draw(30, 1, 3, 3)
    for sizes in ([30], [1] * 30, [7, 7, 7, 9]):
        if kernel == GaussianKernel(50.0) and sizes[0] == 1:
            continue  # it has to see two images before it knows
        metric = fed(PixelCKA(kernel), images, sizes)
        assert sum(len(batch) for batch in metric.images) == 30
        assert torch.equal(metric.compute(), pixel_cka(images, kernel=kernel))


def test_cka_keeps_images_where_the_covariance_is_too_large(monkeypatch):
    images = draw(30, 1, 3, 3)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 4 * 8 * (9 * 3) ** 2 - 1)
    metric = fed(PixelCKA(GaussianKernel(0.01)), images, [1, 29])
    assert len(metric.images) == 2
    assert (metric.compute() - pixel_cka(images, kernel=GaussianKernel(0.01))).abs().max() < 1e-12


def test_a_large_batch_is_added_within_the_memory_budget(monkeypatch):
    images = draw(200, 1, 3, 3)
    monkeypatch.setattr(chunking, "MEMORY_BUDGET", 80_000)
    metric = fed(PixelCKA(GaussianKernel(0.001), tolerance=1e-3), images, [200])
    assert metric.product_sum.ndim == 2
    assert (metric.compute() - pixel_cka(images, kernel=GaussianKernel(0.001))).abs().max() < 1e-3


def test_cka_warns_where_later_images_spread_far_more():
    metric = PixelCKA(GaussianKernel(0.01))
    metric.update(0.1 * draw(50, 1, 3, 3))
    metric.compute()  # within the tolerance: no warning, which would be an error here
    metric.update(5 * draw(50, 1, 3, 3, seed=1))
    with pytest.warns(UserWarning, match=r"PixelCKA is exact to .*, not to `tolerance`=1\.0e-06.*Shuffle the images"):
        found = metric.compute()
    images = torch.cat([0.1 * draw(50, 1, 3, 3), 5 * draw(50, 1, 3, 3, seed=1)])
    error = (found - pixel_cka(images, kernel=GaussianKernel(0.01))).abs().max()
    assert error > 1e-6


@pytest.mark.parametrize("gamma", [1e-4, 3e-4, 1e-3, 3e-3])
def test_cka_does_not_warn_where_later_images_spread_a_bit_more(gamma):
    metric = PixelCKA(GaussianKernel(gamma))
    first, later = draw(50, 1, 3, 3), 1.5 * draw(50, 1, 3, 3, seed=1)
    metric.update(first)
    metric.update(later)
    found = metric.compute()  # a warning would be an error here
    assert (found - pixel_cka(torch.cat([first, later]), kernel=GaussianKernel(gamma))).abs().max() < 2e-6


def test_a_site_that_starts_to_vary_late_is_no_constant():
    images = draw(80, 1, 2, 2)
    images[:40, 0, 0, 0] = 0.5
    images[:, 0, 1, 1] = -1
    metric = fed(PixelCKA(GaussianKernel(0.001)), images, [40, 40])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may say so
        matrix = metric.compute()
    assert matrix.diagonal().tolist() == [1, 1, 1, 0]
    assert (matrix - pixel_cka(images, kernel=GaussianKernel(0.001))).abs().max() < 1e-5


def test_images_without_variation_give_zeros():
    metric = PixelCKA(GaussianKernel(1.0))
    metric.update(torch.ones(4, 1, 2, 2))
    assert not metric.compute().any()


def test_what_is_refused():
    metric = PixelCKA(GaussianKernel(0.1))
    with pytest.raises(ValueError, match="`images` to hold at least 2 samples, but got 1"):
        metric.update(draw(1, 1, 3, 3))
    metric.update(draw(4, 1, 3, 3))
    with pytest.raises(ValueError, match=r"`images` of shape \[N, 1, 3, 3\] like the images before"):
        metric.update(draw(4, 1, 4, 4))
    with pytest.raises(ValueError, match="`patch_size` to divide the size 3×3"):
        PixelCKA(patch_size=2).update(draw(4, 1, 3, 3))
    empty = PixelCKA()
    with pytest.warns(UserWarning, match="before the ``update``"), pytest.raises(ValueError, match="2 images before"):
        empty.compute()


@pytest.mark.parametrize("kernel", [None, GaussianKernel(0.01), LaplacianKernel()])
def test_forward_gives_the_matrix_of_the_batch_alone(kernel):
    images = draw(50, 1, 3, 3)
    metric = PixelCKA(kernel)
    first = metric(images[:30])
    assert float((first - pixel_cka(images[:30], kernel=kernel)).abs().max()) < 1e-6
    with pytest.raises(ValueError, match="`images` to hold at least 2"):
        metric(images[30:31])  # one image has no CKA of its own, but it is added
    metric(images[31:])
    streams = metric.product_sum.ndim == 2
    of_gamma = images[:30] if streams else images
    exact = pixel_cka(images, kernel=(kernel or GaussianKernel()).resolved(of_gamma.flatten(1)))
    assert (metric.compute() - exact).abs().max() < 2e-6


def test_plot_shows_the_varying_sites():
    images = draw(30, 1, 3, 3)
    images[:, 0, 1, 1] = 0
    metric = PixelCKA(GaussianKernel(0.01))
    metric.update(images)
    figure, ax = metric.plot()
    assert ax.images[0].get_array().shape == (8, 8)
    assert figure.axes[0] is ax
    with pytest.raises(ValueError, match="no `ax` for PixelCKA"):
        metric.plot(ax=ax)
