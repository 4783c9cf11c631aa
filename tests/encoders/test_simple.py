# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
import torch

from genmonitor.encoders.frozen import OneHot, TfIdf, pixels


def test_pixels_are_the_images_values_in_reading_order():
    images = torch.arange(24.0).view(2, 3, 2, 2)
    assert torch.equal(pixels(images)[1], torch.arange(12.0, 24.0))


def test_one_hot_has_a_column_per_label_in_rising_order():
    encoded = OneHot([9, 2, 9, 5])(torch.tensor([5, 9, 2, 2]))
    assert encoded.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]]


def test_tf_idf_is_of_length_1_and_counts_rare_words_more():
    row = TfIdf(["red cat", "blue cat"])(["red cat", "green"])
    assert float(row[0].norm()) == pytest.approx(1)
    assert row[1].tolist() == [0, 0, 0]
    assert row[0, 2] > row[0, 1] > row[0, 0] == 0  # blue, cat, red


def test_words_of_one_character_count():
    one, seven = TfIdf(["digit 1", "digit 7"])(["digit 1", "digit 7"])
    assert float(one @ seven) < 0.6


def test_tf_idf_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "genmonitor\[demo\]"'):
        TfIdf(["x"])
