# SPDX-License-Identifier: Apache-2.0
"""Whitening of images: every spatial frequency varies alike, so that fine detail counts as much as shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.linalg.chunking import in_cache, row_blocks
from genmonitor.linalg.precision import full_precision

FLOOR = 0.02
"""Part of the largest standard deviation added to all, since small variations are mostly rounding and codecs."""
REACH = 3
"""Reach of the filter to each side in pixels, enough to show blur, noise and patterns like the whole filter."""


class Whitening(NamedTuple):
    """Makes the spatial frequencies of images vary alike, by a filter with a reach of 3 pixels.

    Channels are rotated to their principal axes. Dividing each coefficient of their discrete cosine transform by its
    standard deviation among the reference images, plus 2 % of the largest, would whiten them. But such a filter
    subtracts low frequencies everywhere if these vary most, so a fault in one corner would show in all others. Its
    kernel is therefore cut off smoothly at 3 pixels, with the same gain for constant images.

    Attributes:
        mean: Mean of the reference images [C, H, W].
        axes: Principal axes of the channels, one per row [C, C].
        kernels: Filter kernels of the rotated channels [C, 1, 2 R + 1, 2 R + 1].

    Example:
        Noise has 3 % of the variance of the pixels, and 27 % of that of their texture:

        >>> generator = torch.Generator().manual_seed(0)
        >>> smooth = torch.nn.functional.avg_pool2d(torch.rand(64, 1, 12, 12, generator=generator), 5, 1)
        >>> noisy, whitening = smooth + 0.01 * torch.randn(smooth.shape, generator=generator), Whitening.of(smooth)
        >>> [round(float((x - y).var() / y.var()), 2) for x, y in ((noisy, smooth), map(whitening, (noisy, smooth)))]
        [0.03, 0.27]
    """

    mean: Tensor
    axes: Tensor
    kernels: Tensor

    @classmethod
    def of(cls, *sets: Tensor) -> Whitening:
        """Make it from reference images [N, C, H, W], float32 or float64, in one or more sets; N at least 2."""
        like, count = sets[0], sum(map(len, sets))
        mean = torch.zeros(like.shape[1:], dtype=torch.float64, device=like.device)
        for part in _parts(sets):
            mean += part.double().sum(0) / count
        covariance = mean.new_zeros(len(mean), len(mean))
        variance = torch.zeros_like(mean)
        with full_precision():
            for part in _parts(sets):
                flat = (part.double() - mean).transpose(0, 1).flatten(1)
                covariance += flat @ flat.T
            axes = torch.linalg.eigh(covariance).eigenvectors.T
            rows, columns = (cosines(size).to(mean) for size in like.shape[-2:])
            for part in _parts(sets):
                coefficients = rows @ _rotated(part.double() - mean, axes) @ columns.T
                variance += coefficients.square().sum(0) / (count - 1)
        deviation = variance.sqrt()
        largest = float(deviation.max())
        gain = 1 / (deviation + FLOOR * largest) if largest > 0 else torch.ones_like(deviation)
        return cls(mean.to(like), axes.to(like), _kernels(gain).to(like))

    def __call__(
        self, images: Tensor, inside: Tensor | None = None, part: tuple[slice, slice] = (slice(None), slice(None))
    ) -> Tensor:
        """Whiten images.

        Args:
            images: Images [N, C, H, W], of the reference images' dtype.
            inside: Boolean mask [H, W] of the sites to whiten, independently of the others; None for all.
            part: Rows and columns of the images to return.

        Returns:
            Whitened images [N, C, rows, columns], zero at sites that are not inside.
        """
        reach, seen, beyond = self.kernels.shape[-1] // 2, list[slice](), list[int]()
        for place, size in zip(part, images.shape[2:], strict=True):
            start, stop, _ = place.indices(size)
            before, after = min(reach, start), min(reach, size - stop)
            seen.append(slice(start - before, stop + after))
            beyond = [reach - before, reach - after, *beyond]  # the last dimension comes first
        out = torch.empty_like(images[:, :, *part], memory_format=torch.contiguous_format)
        images, mean = images[:, :, *seen], self.mean[:, *seen]
        with full_precision():
            for some in in_cache(len(images), 6 * images.element_size() * mean.numel()):
                shifted = images[some] - mean
                shifted = shifted if inside is None else shifted.mul_(inside[*seen])
                out[some] = self._filtered(F.pad(shifted, beyond, mode="reflect") if reach else shifted)
        return out if inside is None else out.mul_(inside[part])

    def _filtered(self, padded: Tensor) -> Tensor:
        """Return the images [N, C, H, W] filtered by products of Fourier transforms, without the padding."""
        from scipy.fft import next_fast_len

        sides, reach = padded.shape[2:], self.kernels.shape[-1] - 1
        lengths = [next_fast_len(side, real=True) for side in sides]
        spectra = torch.fft.rfft2(_rotated(padded, self.axes), s=lengths)
        spectra *= torch.fft.rfft2(self.kernels[:, 0].flip(1, 2), s=lengths)
        filtered = torch.fft.irfft2(spectra, s=lengths)[..., reach : sides[0], reach : sides[1]]
        return _rotated(filtered, self.axes.T)


def _parts(sets: Sequence[Tensor]) -> Iterator[Tensor]:
    for images in sets:
        yield from (images[a:b] for a, b in row_blocks(len(images), 16 * 4 * 8, columns=images.shape[1:].numel()))


def _rotated(images: Tensor, axes: Tensor) -> Tensor:
    """Rotate the channels of images [N, C, H, W]."""
    return images if len(axes) == 1 else (axes @ images.flatten(2)).unflatten(2, images.shape[2:])


def _kernels(gain: Tensor) -> Tensor:
    """Return the kernel of each channel's filter, cut off at `REACH`: [C, 1, 2 R + 1, 2 R + 1].

    Args:
        gain: Gain of each coefficient of the cosine transform [C, H, W].
    """
    height, width = gain.shape[1:]
    reach = min(REACH, height - 1, width - 1)
    # the cosine transform is the Fourier transform of the image's even extension
    mirrored = [[*range(size), size - 1, *range(size - 1, 0, -1)] for size in (height, width)]
    spectrum = gain[:, mirrored[0]][:, :, mirrored[1]]
    kernel = torch.fft.ifft2(spectrum).real.roll((reach, reach), (1, 2))[:, : 2 * reach + 1, : 2 * reach + 1]
    taper = torch.hann_window(2 * reach + 3, periodic=False, dtype=gain.dtype, device=gain.device)[1:-1]
    window = taper[:, None] * taper
    kernel = kernel * window
    lost = kernel.sum((1, 2)) - gain[:, 0, 0]
    return (kernel - lost[:, None, None] * window / window.sum())[:, None]


def slices_of(mask: Tensor) -> tuple[slice, slice]:
    """Return the rows and columns of the smallest rectangle that holds a mask [H, W]."""
    rows, columns = (slice(int(x.min()), int(x.max()) + 1) for x in mask.nonzero(as_tuple=True))
    return rows, columns


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
