# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from genmonitor.encoders.image_features import ImageFeatures

SQUARE = {"size": {"height": 4, "width": 4}, "crop_size": None, "resample": 2}
PREPARED = SimpleNamespace(**SQUARE, image_mean=[0.5] * 3, image_std=[0.25] * 3)


def test_images_of_other_than_1_or_3_channels_are_refused():
    encoder = ImageFeatures(nn.Identity(), nn.Identity(), 3, PREPARED, (0.0, 1.0))
    for channels in (1, 3):
        torch.testing.assert_close(encoder.to_inputs(torch.ones(2, channels, 5, 5)), torch.full((2, 3, 4, 4), 2.0))
    for channels in (2, 4):
        with pytest.raises(ValueError, match=rf"1 or 3 channels for a pretrained encoder, but got {channels}"):
            encoder.to_inputs(torch.ones(2, channels, 5, 5))
