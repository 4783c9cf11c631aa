# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor import GaussianKernel, LaplacianKernel, PixelCKA
from genmonitor.functional import pixel_cka
from genmonitor.metrics import cka as module


def draw(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).clamp(-2, 2)
    return x + x.roll(1, dims=-1)


def fed(metric: PixelCKA, images: torch.Tensor, sizes: list[int]) -> PixelCKA:
    for batch in images.split(sizes):
        metric.update(batch)
    return metric


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"kernel": LaplacianKernel()},
        {"kernel": GaussianKernel(0.01), "patch_size": 2},
        {"kernel": GaussianKernel(0.01), "batch_estimator": 20, "tolerance": 1e-3},
    ],
)
def test_the_matrix_is_that_of_the_function(arguments):
    images = draw(90, 1, 4, 4)
    metric = fed(PixelCKA(**arguments), images, [1, 73, 16])
    expected = pixel_cka(images, **arguments)
    assert torch.equal(metric.compute(), expected)
    gamma = metric.kernel.gamma
    metric.update(draw(30, 1, 4, 4, seed=1))
    metric.compute()
    assert metric.kernel.gamma == gamma  # resolved once


def test_too_many_images_are_refused_with_what_to_do_and_the_others_stay(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 40 * 9 * 8)
    images = draw(41, 1, 3, 3)
    metric = fed(PixelCKA(), images[:40], [40])
    with pytest.raises(ValueError, match=r"at most .* GiB altogether, but got .*random subset.*`batch_estimator=m`"):
        metric.update(images[40:])
    assert torch.equal(metric.compute(), pixel_cka(images[:40]))


def test_plot_shows_the_varying_sites():
    images = draw(30, 1, 3, 3)
    images[:, 0, 1, 1] = 0
    figure, ax = fed(PixelCKA(), images, [30]).plot()
    assert ax.images[0].get_array().shape == (8, 8)
    assert figure.axes[0] is ax
    with pytest.raises(ValueError, match="no `ax` for PixelCKA"):
        PixelCKA().plot(ax=ax)
