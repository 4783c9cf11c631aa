# SPDX-License-Identifier: Apache-2.0

import torch

from genmonitor.encoders.frozen import OneHot, pixels


def test_pixels_are_the_images_values_in_reading_order():
    images = torch.arange(24.0).view(2, 3, 2, 2)
    assert torch.equal(pixels(images)[1], torch.arange(12.0, 24.0))


def test_one_hot_has_a_column_per_label_in_rising_order():
    encoded = OneHot([9, 2, 9, 5])(torch.tensor([5, 9, 2, 2]))
    assert encoded.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]]
