# SPDX-License-Identifier: Apache-2.0
"""Texts as weights of their words: what can be had without a network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MAX_WORDS = 3000
WORD = r"(?u)\b\w+\b"
"""Of one letter or digit too, unlike scikit-learn's own: prompts may differ in nothing else."""


class TfIdf:
    """Texts to the weights of their words [n, w], of length 1: frequent here and rare in the corpus weighs much.

    Args:
        corpus: texts whose words are known, the 3000 most frequent at most.

    Raises:
        ModuleNotFoundError: if scikit-learn is not installed.
        ValueError: if there is no word in the corpus.

    Example:
        >>> encode = TfIdf(["a red cat", "a blue cat", "a dog"])
        >>> red, blue, dog = encode(["red cat", "blue cat", "dog"])
        >>> bool(red @ blue > red @ dog)
        True
    """

    def __init__(self, corpus: Sequence[str]) -> None:
        try:
            from sklearn.feature_extraction.text import TfidfVectorizer
        except ImportError as error:
            raise ModuleNotFoundError(
                'TF-IDF needs scikit-learn, which is not installed. Run: pip install "genmonitor[demo]"'
            ) from error
        self._vectorizer = TfidfVectorizer(max_features=MAX_WORDS, token_pattern=WORD).fit(corpus)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Encode texts."""
        return torch.from_numpy(self._vectorizer.transform(texts).toarray()).float()
