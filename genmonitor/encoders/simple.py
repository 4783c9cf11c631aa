# SPDX-License-Identifier: Apache-2.0
"""Encoders without weights: pixel values of images, one-hot rows of class labels."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def pixels(images: Tensor) -> Tensor:
    """Return the images' values themselves, [n, c·h·w].

    Example:
        >>> pixels(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 64])
    """
    return images.flatten(1)


class OneHot:
    """Class labels [n] as rows of the identity [n, number of classes].

    Args:
        labels: all that occur, in any order, more than once too.

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
