# SPDX-License-Identifier: Apache-2.0
"""Band energy test: compares the coarse and fine detail of generated and real images, octave by octave."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import check_at_least, check_images
from genmonitor.functional.kernel_means import check_sides
from genmonitor.functional.permutation import (
    MIN_SAMPLES,
    NUM_PERMUTATIONS,
    Blocks,
    check_permutations,
    familywise_p_values,
    standardized,
)
from genmonitor.linalg.chunking import row_blocks
from genmonitor.linalg.precision import full_precision
from genmonitor.linalg.whitening import cosines

DIRECTIONS = ("vertical lines", "horizontal lines", "diagonal lines and corners")
STEP = 1 / 255
"""Part of the range of real images that 8 bits resolve; energy below that of rounding to it is invisible."""


class BandEnergy(NamedTuple):
    """Result of `band_energy_test` for B bands, the finest first.

    Attributes:
        wavelengths: Shortest wavelength of each band in pixels. A band ends where the next begins; the last has no end.
        energy: Energy of a typical generated image divided by that of a typical real one, float64 [B]; 1 if they agree.
        p_value: P-value of no difference in a band, float64 [B], one level for all bands and directions.
        directed_energy: Same as `energy` for vertical, horizontal and diagonal details, float64 [B, 3].
        directed_p_value: P-values of these, float64 [B, 3].
    """

    wavelengths: tuple[int, ...]
    energy: Tensor
    p_value: Tensor
    directed_energy: Tensor
    directed_p_value: Tensor


def band_energy_test(
    fake: Tensor, real: Tensor, *, num_permutations: int = NUM_PERMUTATIONS, seed: int = 0
) -> BandEnergy:
    """Compare the energy of generated and real images in octaves of spatial frequency, by permuting the sides.

    The energy of a band is the sum of squares of an image's cosine transform over wavelengths of 2-4, 4-8, … pixels. No
    band contains the mean brightness. The typical energy is the geometric mean, since energies of photographs spread
    over orders of magnitude. The statistic is the difference of the mean logarithms, standardized over the
    permutations. Bands and directions share one level (Westfall and Young). Images need not be aligned.

    Args:
        fake: Images [N, C, H, W], N at least 8; height and width at least 2.
        real: Images [M, C, H, W], M at least 8.
        num_permutations: Number of random splits, at least 19.
        seed: Seed of the splits.

    Raises:
        TypeError: If a side is not a tensor of real numbers.
        ValueError: If shapes differ, values are not finite, images are fewer than 8 or smaller than 2 pixels, or an
            argument is out of its range.

    References:
        Schwarz, Liao and Geiger, "On the Frequency Bias of Generative Models", NeurIPS 2021, arXiv 2111.02447.
        Durall, Keuper and Keuper, "Watch your Up-Convolution", CVPR 2020, arXiv 2003.01826.
        Westfall and Young, "Resampling-Based Multiple Testing", 1993.

    Example:
        >>> images = torch.rand(200, 1, 16, 16, generator=torch.Generator().manual_seed(0))
        >>> smooth = torch.nn.functional.avg_pool2d(images, (1, 3), 1, (0, 1), count_include_pad=False)
        >>> found = band_energy_test(smooth[:100], images[100:])
        >>> found.wavelengths, [round(x, 2) for x in found.energy.tolist()], found.p_value.tolist()
        ((2, 4, 8), [0.25, 0.59, 0.97], [0.001, 0.001, 0.997])
    """
    check_permutations(num_permutations, seed)
    real, fake = check_sides({"real": real, "fake": fake}, None, MIN_SAMPLES)
    check_images("real", real)
    check_at_least("height and width", min(real.shape[2:]), 2)
    blocks = Blocks.of(fake, real, num_permutations, seed)
    wavelengths, masks = _bands(real.shape[2], real.shape[3])
    step = float(real.max() - real.min()) * STEP
    least = step**2 / 12 * real.shape[1] * masks.sum((-2, -1)).double()
    energies = [_energies(x, masks.flatten(0, 1)).cpu() + least.flatten() for x in (fake, real)]
    logs = [x.clamp_min(torch.finfo(x.dtype).tiny).log() for x in energies]
    # minus those of one image, which changes no difference, so that they are exactly zero if all agree
    of_fake, of_real = (x - logs[1][:1] for x in logs)
    ratios = (of_fake.mean(0) - of_real.mean(0)).exp().view(len(wavelengths), -1)
    differences = blocks.differences(blocks.take(of_fake, of_real)).T
    larger, smaller = standardized(differences), standardized(-differences)
    p = familywise_p_values(torch.maximum(larger, smaller)).view_as(ratios)
    return BandEnergy(wavelengths, ratios[:, 0], p[:, 0], ratios[:, 1:], p[:, 1:])


def _bands(height: int, width: int) -> tuple[tuple[int, ...], Tensor]:
    """Return the shortest wavelengths and the cosines of each band, all and by direction, bool [B, 4, H, W]."""
    down, across = torch.arange(height)[:, None] / (2 * height), torch.arange(width)[None] / (2 * width)
    frequency = torch.hypot(down, across)  # in cycles per pixel
    count = max(1, round(math.log2(min(height, width))) - 1)
    octave = (frequency <= 0.25 / 2 ** torch.arange(count - 1)[:, None, None]).sum(0)
    octave[0, 0] = -1
    lines = torch.stack([across > 2 * down, down > 2 * across])
    directions = torch.stack([torch.ones_like(lines[0]), *lines, ~lines.any(0)])
    of_band = octave == torch.arange(count)[:, None, None]
    return tuple(2 ** (i + 1) for i in range(count)), of_band[:, None] & directions


def _energies(images: Tensor, masks: Tensor) -> Tensor:
    """Return the energy of images [N, C, H, W] within each of the masks [K, H, W], float64 [N, K]."""
    rows, columns = (cosines(size).to(images) for size in images.shape[2:])
    of_mask = masks.flatten(1).double().to(images.device)
    parts = []
    with full_precision():
        for start, stop in row_blocks(len(images), 3 * 8, columns=images[0].numel()):
            some = images[start:stop] - images[start:stop, :, :1, :1]  # one color throughout is then exactly zero
            power = (rows @ some @ columns.T).double().square().sum(1)
            parts.append(power.flatten(1) @ of_mask.T)
    return torch.cat(parts)
