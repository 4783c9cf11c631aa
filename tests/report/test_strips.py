# SPDX-License-Identifier: Apache-2.0
import io

import numpy as np
from PIL import Image

from genmonitor.evaluation.results import ShownImages
from genmonitor.report.strips import describe_strip, encode_strip


def test_small_images_are_kept_bit_for_bit():
    levels = np.random.default_rng(0).integers(0, 256, (3, 8, 6, 3))
    shown = ShownImages(levels / 255, ["a", "b", "c"], levels[::-1] / 255, [1.0, 0.25, 0.12345])
    with Image.open(io.BytesIO(encode_strip(shown))) as file:
        pixels = np.asarray(file.convert("RGB"))
    assert np.array_equal(pixels[:, :6], levels.reshape(24, 6, 3))
    assert np.array_equal(pixels[:, 6:], levels[::-1].reshape(24, 6, 3))
    about = {"height": 8, "nearest": True, "captions": ["a", "b", "c"], "distances": [1.0, 0.25, 0.123]}
    assert describe_strip(shown) == about
