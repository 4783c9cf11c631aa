# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from drawn_scenes import draw_scenes
from nearest import GALLERY, NEIGHBORS, draw_nearest, nearest, share_alike


def test_nearest_are_those_of_one_direction_whatever_their_length():
    directions = torch.eye(4).repeat_interleave(6, dim=0) + 0.01 * torch.rand(24, 4, generator=torch.manual_seed(0))
    lengths = torch.linspace(0.1, 9, 24)[:, None]
    found = nearest(directions * lengths)
    assert found.shape == (24, NEIGHBORS)
    assert torch.equal(found // 6, (torch.arange(24) // 6)[:, None].expand(-1, NEIGHBORS))
    assert (found != torch.arange(24)[:, None]).all()


def test_nearest_are_looked_for_in_the_gallery():
    embedded = torch.rand(GALLERY + 50, 3, generator=torch.manual_seed(0))
    assert nearest(embedded).shape == (GALLERY, NEIGHBORS)
    assert nearest(embedded).max() < GALLERY


def test_share_alike_counts_labels_of_neighbors():
    neighbors = torch.tensor([[1, 2], [0, 2], [0, 1]])
    assert share_alike(neighbors, ["a", "a", "b", "not in the gallery"]) == pytest.approx(2 / 6)


def test_picture_is_drawn(tmp_path):
    images = draw_scenes(8, seed=0).images
    neighbors = {"one": nearest(images.flatten(1)), "other": nearest(-images.flatten(1))}
    draw_nearest(tmp_path / "new" / "picture.png", "Title", images, {0: "first", 3: "fourth"}, neighbors)
    assert 5_000 < (tmp_path / "new" / "picture.png").stat().st_size < 150_000
