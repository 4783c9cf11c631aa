# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch import nn

from genmonitor.encoders.feature_cache import FeatureCache

IMAGES = torch.rand(4, 1, 2, 2)


class Counting(nn.Module):
    """A linear encoder that counts the images it sees."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.linear, self.seen = nn.Linear(4, 3), 0

    @torch.no_grad()
    def forward(self, images):
        self.seen += len(images)
        return self.linear(images.flatten(1))


def test_another_run_takes_what_one_kept(tmp_path):
    first, second = Counting(), Counting()
    expected = FeatureCache(tmp_path / "new", first).get(IMAGES, first)
    found = FeatureCache(tmp_path / "new", second).get(IMAGES, second)
    assert torch.equal(found, expected)
    assert (first.seen, second.seen) == (4, 0)


@pytest.mark.parametrize("other", [IMAGES + 1e-7, IMAGES.flip(0), IMAGES.double(), IMAGES.reshape(4, 2, 2, 1)])
def test_other_images_are_encoded(tmp_path, other):
    encoder = Counting().to(other.dtype)
    cache = FeatureCache(tmp_path, encoder)
    cache.get(IMAGES.to(other.dtype) if other.dtype == torch.double else IMAGES, encoder)
    assert len(list(tmp_path.iterdir())) == 1
    encoder.seen = 0
    cache.get(other if other.dtype != torch.double else other + 1, encoder)
    assert encoder.seen == 4


@pytest.mark.parametrize("other", [Counting(seed=1), nn.Sequential(Counting())])
def test_other_weights_or_structure_are_another_encoder(tmp_path, other):
    first = Counting()
    FeatureCache(tmp_path, first).get(IMAGES, first)
    FeatureCache(tmp_path, other).get(IMAGES, other)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("content", [b"", b"no numbers", b"\x93NUMPY\x01\x00"])
def test_a_damaged_file_is_made_anew(tmp_path, content):
    encoder = Counting()
    cache = FeatureCache(tmp_path, encoder)
    expected = cache.get(IMAGES, encoder)
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    assert torch.equal(cache.get(IMAGES, encoder), expected)
    assert torch.equal(cache.get(IMAGES, lambda images: pytest.fail("encoded again")), expected)


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    encoder = Counting()
    with pytest.warns(UserWarning, match="are not kept for the next run"):
        found = FeatureCache(tmp_path / "file", encoder).get(IMAGES, encoder)
    assert found.shape == (4, 3)


def test_a_function_is_refused(tmp_path):
    with pytest.raises(TypeError, match="`encoder` to be a Module with a `cache`, but got function"):
        FeatureCache(tmp_path, lambda images: images)


def test_an_encoder_with_counters_has_a_fingerprint(tmp_path):
    encoder = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten())  # counts its batches in a tensor without dimensions
    assert FeatureCache(tmp_path, encoder).get(torch.rand(3, 1, 2, 2), encoder).shape == (3, 4)
