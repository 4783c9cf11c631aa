# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.kernels import views
from genmonitor.kernels.views import Texture
from genmonitor.linalg.whitening import Whitening
from genmonitor.partition import PixelPartition


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_regions_have_the_same_distances_by_matrices_and_by_the_filter(monkeypatch, dtype):
    images = torch.rand(40, 3, 12, 10, generator=torch.Generator().manual_seed(0)).cumsum(-1).to(dtype)
    texture = Texture.of(Whitening.of(images), PixelPartition.grid((12, 10), 2, 2))

    def distances():
        pieces = [texture.pieces(region, images[:15], images[15:]) for region in range(len(texture))]
        return [sum(torch.cdist(x, y).square() for x, y in of) for of in pieces]

    by_matrices = distances()
    assert [*texture.matrices] == [0, 1, 2, 3, 4]
    monkeypatch.setattr(views, "MATRICES", 0)
    for by_filter, found in zip(distances(), by_matrices, strict=True):
        torch.testing.assert_close(found, by_filter, rtol=1e-4, atol=0)


def test_a_region_without_variation_has_exactly_no_distances():
    images = torch.rand(70, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    images[..., 5:] = 0.3
    texture = Texture.of(Whitening.of(images), PixelPartition.grid((12, 10), 1, 2))
    (sides,) = texture.pieces(2, images)
    assert not sides[0].sub(sides[0][0]).any()
