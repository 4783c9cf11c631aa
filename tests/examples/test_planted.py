# SPDX-License-Identifier: Apache-2.0
"""The planted images, of which other examples and the benchmarks know the true regions."""

import pytest
import torch
from planted import planted_images, planted_labels

from genmonitor import PixelPartition
from genmonitor.functional import pixel_cka

LABELS = planted_labels()


@pytest.mark.parametrize(("n", "seed"), [(300, 1), (1000, 0)])
def test_the_regions_and_their_number_are_found(n, seed):
    partition = PixelPartition.from_cka(pixel_cka(planted_images(n, seed)), LABELS.shape)
    assert torch.equal(partition.labels, LABELS)


@pytest.mark.parametrize("region", [1, 4])
def test_spoiling_changes_its_region_alone(region):
    images, spoiled = planted_images(500, seed=6), planted_images(500, seed=6, spoiled=region)
    same = region != LABELS
    assert torch.equal(images[..., same], spoiled[..., same])
    assert spoiled[..., ~same].mean() - images[..., ~same].mean() > 0.25
