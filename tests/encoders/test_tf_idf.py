# SPDX-License-Identifier: Apache-2.0
import sys

import pytest

from genmonitor.encoders.tf_idf import TfIdf


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
