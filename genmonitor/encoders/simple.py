# SPDX-License-Identifier: Apache-2.0
"""Encoders without pretrained weights: pixel values of images, one-hot class labels, TF-IDF of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

MAX_WORDS = 3000
WORD = r"(?u)\b\w+\b"
"""Words of a single character count too, unlike by default in scikit-learn: prompts may differ in nothing else."""


def pixels(images: Tensor) -> Tensor:
    """Flatten images to their pixel values [n, c·h·w].

    Example:
        >>> pixels(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 64])
    """
    return images.flatten(1)


class OneHot:
    """Class labels [n] as rows of the identity [n, number of classes].

    Args:
        labels: all that occur, in any order; repeated ones count once.

    Example:
        >>> OneHot([3, 7, 3])(torch.tensor([7, 3]))
        tensor([[0., 1.],
                [1., 0.]])
    """

    def __init__(self, labels: Iterable[int]) -> None:
        self.classes = torch.tensor(sorted(set(labels)))

    def __call__(self, labels: Tensor) -> Tensor:
        """Encode labels [n]."""
        return (labels[:, None] == self.classes.to(labels.device)).float()


class TfIdf:
    """TF-IDF vectors of texts [n, w], of unit length: words that are frequent here and rare in the corpus weigh most.

    Args:
        corpus: texts that give the vocabulary, the 3000 most frequent words at most.

    Raises:
        ModuleNotFoundError: if scikit-learn is not installed.
        ValueError: if the corpus has no words.

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
