# SPDX-License-Identifier: Apache-2.0
import torch

from genmonitor.kernels.views import Texture
from genmonitor.linalg.whitening import Whitening
from genmonitor.partition import PixelPartition


def test_a_region_without_variation_has_exactly_no_distances():
    images = torch.rand(70, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    images[..., 5:] = 0.3
    texture = Texture.of(Whitening.of(images), PixelPartition.grid((12, 10), 1, 2))
    values = texture.values(2, images)
    assert not values.sub(values[0]).any()
