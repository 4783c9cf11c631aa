# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from genmonitor.evaluation.data.real_subset import RealSubset
from genmonitor.evaluation.data.reference import ReferenceImages


def numbered(count, start=0):
    """Return images that know their own index."""
    return torch.arange(start, start + count, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)


def subset(count, n, shape=(1, 2, 2)):
    return RealSubset.at_random(ReferenceImages(given=numbered(count)), n, 0, shape)


def test_real_subset_is_n_images_at_random():
    values = subset(50, 10).read(range(10))[:, 0, 0, 0].tolist()
    assert len(set(values)) == 10
    assert values != sorted(values)
    assert subset(50, 10).read(range(4, 6))[:, 0, 0, 0].tolist() == values[4:6]


def test_real_subset_of_a_smaller_set_is_all_and_says_so():
    found = subset(7, 10)
    assert len(found) == 7
    assert found.notes(10) == ("only 7 real images are there to compare 10 generated ones with",)
    assert found.notes(7) == ()


def test_real_subset_reads_none_in_their_shape():
    assert subset(7, 7).read(range(0)).shape == (0, 1, 2, 2)


def test_real_subset_refuses_another_shape():
    with pytest.raises(ValueError, match=r"of shape \[3, 2, 2\] like the generated ones, but got \[1, 2, 2\]"):
        subset(7, 7, (3, 2, 2))


def test_real_subset_refuses_a_single_image():
    with pytest.raises(ValueError, match="at least 2 real images, but `real_images` holds 1"):
        subset(1, 7)


def test_real_subset_notes_another_scale():
    real = subset(200, 100)
    assert real.range_notes(real.read(range(5))) == ()
    assert "negative" in real.range_notes(-real.read(range(5)))[0]
