# SPDX-License-Identifier: Apache-2.0
"""Whitening of images: every spatial frequency is made to vary alike, so that fine detail counts as much as shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.precision import full_precision

FLOOR = 0.02
"""Part of the largest standard deviation that is added to all: what hardly varies is mostly rounding and codecs."""


class Whitening(NamedTuple):
    """Divides the spatial frequencies of images by their standard deviations, and leaves the images' shape.

    Channels are rotated to their principal axes; each coefficient of their discrete cosine transform is divided by its
    standard deviation among the reference images plus 2 % of the largest; both steps are then undone. Distances of
    whole images are those of the divided coefficients, since both are orthonormal.

    Attributes:
        mean: of the reference images [C, H, W].
        axes: of the channels, a row each [C, C].
        scale: what coefficients are multiplied by [C, H, W].

    Example:
        >>> images = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0)).cumsum(3)
        >>> varies = Whitening.of(images)(images).var(0)
        >>> bool(images.var(0).max() > 50 * images.var(0).min()), bool(varies.max() < 5 * varies.min())
        (True, True)
    """

    mean: Tensor
    axes: Tensor
    scale: Tensor

    @classmethod
    def of(cls, images: Tensor) -> Whitening:
        """Take it from reference images [N, C, H, W], float32 or float64; N at least 2."""
        mean = torch.zeros(images.shape[1:], dtype=torch.float64, device=images.device)
        for part in _parts(images):
            mean += part.double().sum(0) / len(images)
        covariance = mean.new_zeros(len(mean), len(mean))
        variance = torch.zeros_like(mean)
        with full_precision():
            for part in _parts(images):
                flat = (part.double() - mean).transpose(0, 1).flatten(1)
                covariance += flat @ flat.T
            axes = torch.linalg.eigh(covariance).eigenvectors.T
            for part in _parts(images):
                variance += _dct(_rotated(part.double() - mean, axes)).square().sum(0) / (len(images) - 1)
        deviation = variance.sqrt()
        largest = float(deviation.max())
        scale = 1 / (deviation + FLOOR * largest) if largest > 0 else torch.ones_like(deviation)
        return cls(mean.to(images), axes.to(images), scale.to(images))

    def __call__(self, images: Tensor, inside: Tensor | None = None) -> Tensor:
        """Whiten images.

        Args:
            images: [N, C, H, W], of the reference images' dtype.
            inside: sites to look at alone, booleans [H, W]: what the others hold does not show in them; None for all.

        Returns:
            [N, C, H, W], zero at sites that are not inside.
        """
        out = torch.empty_like(images)
        with full_precision():
            for start, stop in row_blocks(len(images), 4 * images.element_size(), columns=images[0].numel()):
                shifted = images[start:stop] - self.mean
                shifted = shifted if inside is None else shifted * inside
                coefficients = _dct(_rotated(shifted, self.axes)) * self.scale
                out[start:stop] = _rotated(_dct(coefficients, inverse=True), self.axes.T)
        return out if inside is None else out * inside

    def by_region(self, images: Tensor, labels: Tensor) -> Tensor:
        """Whiten each region of images [N, C, H, W] alone, so that no other shows in it; `labels` [H, W] tell them."""
        labels = labels.to(images.device)
        return sum((self(images, labels == label) for label in labels.unique()), torch.zeros_like(images))


def _parts(images: Tensor) -> Iterator[Tensor]:
    return (images[start:stop] for start, stop in row_blocks(len(images), 4 * 8, columns=images[0].numel()))


def _rotated(images: Tensor, axes: Tensor) -> Tensor:
    """Rotate the channels of images [N, C, H, W]."""
    return images if len(axes) == 1 else torch.einsum("kc,nchw->nkhw", axes, images)


def _dct(images: Tensor, inverse: bool = False) -> Tensor:
    """Return the orthonormal cosine transform (DCT-II) of the last two axes, or its inverse."""
    rows, columns = (cosines(size).to(images) for size in images.shape[-2:])
    return rows.T @ images @ columns if inverse else rows @ images @ columns.T


def cosines(size: int) -> Tensor:
    """Return the orthonormal matrix of the discrete cosine transform of a length, the lowest frequency first.

    Example:
        >>> torch.allclose(cosines(5) @ cosines(5).T, torch.eye(5, dtype=torch.float64))
        True
    """
    at = (torch.arange(size, dtype=torch.float64) + 0.5) * (math.pi / size)
    matrix = torch.cos(torch.arange(size, dtype=torch.float64)[:, None] * at) * (2 / size) ** 0.5
    matrix[0] /= 2**0.5
    return matrix
