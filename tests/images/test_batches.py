# SPDX-License-Identifier: Apache-2.0
"""Images are found in every common kind of batch, and an error describes a batch without any."""

import pytest
import torch

from genmonitor.images.batches import find_images

IMAGES = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6)


@pytest.mark.parametrize(
    ("batch", "key"),
    [
        (IMAGES, None),
        ((IMAGES, LABELS), None),
        ([LABELS, IMAGES], None),
        ((torch.zeros(6, 20, 16), IMAGES), None),  # a text's embedding before the image
        ({"image": IMAGES, "label": LABELS}, None),
        ({"images": IMAGES}, None),
        ({"label": LABELS, "pixel_values": IMAGES}, None),
        ({"image": ["cat.png"], "pixel_values": IMAGES}, None),
        ({"x": IMAGES, "image": LABELS}, "x"),
        ((LABELS, torch.zeros(6, 1, 4, 4), IMAGES), 2),
        ((LABELS, IMAGES), -1),
        ({"nested": {"pictures": [IMAGES]}}, lambda batch: batch["nested"]["pictures"][0]),
    ],
)
def test_find_images_in_every_common_kind_of_batch(batch, key):
    assert find_images(batch, key) is IMAGES


def test_find_images_gives_gray_ones_a_channel():
    gray = IMAGES[:, 0]
    assert find_images(gray, None).shape == (6, 1, 8, 8)
    assert find_images((gray, LABELS), None).shape == (6, 1, 8, 8)
    assert torch.equal(find_images({"image": gray}, None)[:, 0], gray)


@pytest.mark.parametrize(
    ("batch", "key", "said"),
    [
        ({"x": LABELS}, None, r"a dictionary with the keys \['x'\]"),
        ({"x": IMAGES}, "y", r"`image_key`='y'.*a dictionary with the keys \['x'\]"),
        ((IMAGES,), 4, r"`image_key`=4.*a tuple of a tensor of shape \[6, 3, 8, 8\]"),
        ((IMAGES,), "image", "`image_key`='image'.*a tuple"),
        ((LABELS, LABELS), None, r"a tuple of a tensor of shape \[6\], a tensor of shape \[6\]"),
        ((IMAGES[:, 0], LABELS, IMAGES[:, 1]), None, "that the generator is to learn, 0 or 2"),
        ({"image": "cat.png"}, None, "but got str"),
        (LABELS, None, r"a tensor of shape \[6\]"),
        (IMAGES[None], None, r"a tensor of shape \[1, 6, 3, 8, 8\]"),
        (None, None, "but got NoneType"),
        (IMAGES, lambda batch: batch.tolist(), "`image_key=`"),
    ],
)
def test_find_images_describes_a_batch_without_any(batch, key, said):
    with pytest.raises(ValueError, match=said) as error:
        find_images(batch, key)
    assert "image_key" in str(error.value)


@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        ({"input": torch.zeros(2, 3, 4, 4)}, [2, 3, 4, 4]),
        ({"latents": torch.zeros(2, 4, 8, 8), "text": torch.zeros(2, 7, 5), "label": torch.zeros(2)}, [2, 4, 8, 8]),
        ({"gray": torch.zeros(2, 8, 8), "label": torch.zeros(2)}, [2, 1, 8, 8]),
    ],
)
def test_the_only_images_of_a_dictionary_are_found_under_any_name(batch, shape):
    assert list(find_images(batch, None).shape) == shape


@pytest.mark.parametrize("other", ["images", "pixel_values"])
def test_two_entries_with_names_of_images_are_refused(other):
    """As of one before and one after a transform."""
    with pytest.raises(ValueError, match=f"the generator is to learn, 'image' or '{other}', or `real_images=`"):
        find_images({"image": IMAGES, other: IMAGES}, None)


def test_two_tensors_of_images_in_a_dictionary_are_refused():
    batch = {"before": torch.zeros(2, 3, 4, 4), "after": torch.zeros(2, 3, 4, 4)}
    with pytest.raises(ValueError, match=r"keys \['before', 'after'\].*Give `image_key="):
        find_images(batch, None)
