# SPDX-License-Identifier: Apache-2.0
"""Faults of fine detail: blur, sharpening, noise and patterns that repeat."""

from __future__ import annotations

import io

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from genmonitor.functional.diagnosis.kinds.base import PER_PIXEL, Kind

_PARMAR = "Parmar, Zhang and Zhu, 'On Aliased Resizing and Surprising Subtleties in GAN Evaluation', CVPR 2022, arXiv 2104.11222"

BLOCK, BEYOND = 8, 4
"""Side of JPEG's blocks, and standard errors by which steps between blocks must exceed those in real images."""


class Blurred(Kind):
    """Detail is averaged with its surroundings."""

    name, unit, strengths = "blurred", "px (σ)", (0.4, 0.6, 0.9, 1.4, 2.5)
    words, change = "blurred, σ {s} px", "a Gaussian of σ = s pixels blurs images"
    cause = "a loss of squared error per pixel, which averages what it cannot tell apart"
    source = "Dosovitskiy and Brox, 'Generating Images with Perceptual Similarity Metrics based on Deep Networks', NeurIPS 2016, arXiv 1602.02644"
    remedy = PER_PIXEL
    simplicity = 5

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        return blur(images, strength)


class Sharpened(Kind):
    """Detail is exaggerated."""

    name, unit, strengths = "sharpened", "of the detail", (0.15, 0.3, 0.6, 1.2)
    words, change = "sharpened by {percent} %", "what a blur of 1 pixel takes away is added, times s"
    cause = "training images that were sharpened, or sharpening of what is generated"
    source = "Wang et al., 'Real-ESRGAN: Training Real-World Blind Super-Resolution with Pure Synthetic Data', ICCV Workshops 2021, arXiv 2107.10833"
    remedy = "is anything sharpened on the way, in training images or samples?"
    simplicity = 6

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        return images + strength * (images - blur(images, 1.0))


class Pixelated(Kind):
    """Blocks of pixels are one color."""

    name, unit, strengths = "pixelated", "px", (2, 3, 4)
    words, change = "pixelated in blocks of {s}×{s} px", "blocks of s×s pixels become their mean"
    cause, source = "resizing that repeats pixels, or samples at a lower resolution", _PARMAR
    remedy = "compare the resolution of the generator with that of the training images; resize with a filter"
    whole, bounds = True, (2.0, 64.0)

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        side, (height, width) = max(1, round(strength)), images.shape[2:]
        means = F.avg_pool2d(images, side, ceil_mode=True, count_include_pad=False)
        return means.repeat_interleave(side, 2).repeat_interleave(side, 3)[..., :height, :width]


class Compressed(Kind):
    """Images were saved as JPEG."""

    name, unit, strengths = "compressed", "JPEG quality", (5, 10, 20, 35, 50, 75)
    words, change = "compressed, as JPEG of quality {s}", "images are saved as JPEG of quality s"
    cause, source = "samples, or training images, that were saved as JPEG", _PARMAR
    remedy = "save as PNG; look for JPEG among the training images"
    of_all, bounds, simplicity = True, (1.0, 95.0), 9

    def measured(self, fake: Tensor, real: Tensor, area: Tensor) -> Kind | None:
        """Skip the kind unless steps between blocks of 8 pixels stand out, and more than in real images."""
        if real.shape[1] not in (1, 3) or min(real.shape[2:]) < 2 * BLOCK:
            return None
        of_fake, of_real = (steps_between(x.mean(1), BLOCK) for x in (fake, real))
        error = (of_fake.var() / len(of_fake) + of_real.var() / len(of_real)).sqrt()
        blocks = float(of_fake.mean() - of_real.mean()) > BEYOND * float(error)
        return super().measured(fake, real, area) if blocks else None

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        pixels = (255 * images.clamp(0, 1)).round().byte().permute(0, 2, 3, 1).cpu().numpy()
        saved = np.stack([_through_jpeg(x, max(1, round(strength))) for x in pixels])
        return torch.from_numpy(saved).view(pixels.shape).permute(0, 3, 1, 2).to(images) / 255


def _through_jpeg(pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """Save an image [H, W, C] as JPEG and read it again."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file, formats=["JPEG"]))


def steps_between(gray: Tensor, period: int) -> Tensor:
    """Return the excess of steps across every n-th line over other steps [N], in gray images [N, H, W]."""
    out = []
    for dim in (1, 2):
        steps = gray.diff(dim=dim).abs().mean(3 - dim)
        at = torch.arange(1, steps.shape[1] + 1, device=gray.device) % period == 0
        out.append(steps[:, at].mean(1) - steps[:, ~at].mean(1))
    return torch.stack(out).mean(0)


class Noisy(Kind):
    """Each value has Gaussian noise."""

    name, unit, strengths = "noisy", "of the range", (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
    words, change = "noise {s} of the range", "Gaussian noise of s is added to each value"
    cause = "too few steps of a sampler that adds noise, or no denoising after the last one"
    source = (
        "Song et al., 'Denoising Diffusion Implicit Models', ICLR 2021, arXiv 2010.02502; "
        "Jolicoeur-Martineau et al., 'Adversarial score matching and improved sampling for image generation', ICLR 2021, arXiv 2009.05475"
    )
    remedy = "does the sampler add noise? Then more steps, and none at the last one"
    of_pixels, simplicity, hides = False, 4, True

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        # the CPU's generator gives all devices the same noise
        return images + strength * torch.randn(images.shape, generator=generator).to(images)


class Periodic(Kind):
    """A pattern repeats every few pixels, such as a checkerboard."""

    name, strengths = "periodic", (0.01, 0.02, 0.05, 0.1, 0.2)
    words = "pattern of {period}, amplitude {s} of the range"
    change = "s times the mean difference is added, folded at the period"
    cause = "transposed convolutions whose kernel is no multiple of their stride"
    source = "Odena et al., 'Deconvolution and Checkerboard Artifacts', Distill 2016, doi 10.23915/distill.00003"
    remedy = "are there transposed convolutions whose kernel is no multiple of the stride? Then change it, or resize and convolve"

    def __init__(self, period: int, pattern: Tensor | None = None) -> None:
        self.period, self.pattern = period, pattern
        self.unit = f"of the range, period {period} px"

    def measured(self, fake: Tensor, real: Tensor, area: Tensor) -> Kind | None:
        """Measure the pattern from the mean difference, folded at the period."""
        rows, columns = (int(x.max() - x.min()) + 1 for x in area.nonzero(as_tuple=True))
        if min(rows, columns) < 2 * self.period:
            return None
        difference, everywhere = fake.mean(0) - real.mean(0), bool(area.all())
        level = difference if everywhere else _without_trend(difference, area, self.period)
        pattern, remains = _folded(level, area, self.period)
        # folding must leave 1.5 times the variance that chance leaves in whole images, and half of it in an area, where
        # a step leaves much
        if remains < (1.5 * self.period**2 / float(area.sum()) if everywhere else 0.5):
            return None
        # a pattern that half the period explains nearly as well has that period
        if self.period > 2 and _folded(difference, area, self.period // 2)[1] > 0.8 * remains:
            return None
        return Periodic(self.period, pattern / pattern.abs().max())

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        assert self.pattern is not None
        return images + strength * self.pattern


def blur(images: Tensor, sigma: float) -> Tensor:
    """Blur images by a Gaussian of sigma pixels; the last pixel continues beyond the border."""
    rows, columns = (_blurring(size, sigma).to(images) for size in images.shape[2:])
    return rows @ images @ columns.T


def _blurring(size: int, sigma: float) -> Tensor:
    """Return the matrix that blurs a row of pixels [size, size]."""
    reach = max(1, round(4 * sigma))
    steps = torch.arange(-reach, reach + 1)
    taps = torch.softmax(-(steps.double() ** 2) / (2 * sigma**2), 0)
    to = torch.arange(size)[:, None].expand(-1, len(steps))
    return torch.zeros(size, size, dtype=torch.float64).index_put(
        (to, (to + steps).clamp(0, size - 1)), taps.expand(size, -1), accumulate=True
    )


def _without_trend(difference: Tensor, area: Tensor, period: int) -> Tensor:
    """Subtract the mean over a period around each pixel in the area, which is 0 for a pattern of that period."""
    taps = difference.new_ones(period + 1)
    taps[[0, -1]] = 0.5
    window = (taps[:, None] * taps)[None, None]
    inside = area.to(difference)[None]
    total, count = (F.conv2d(x[:, None], window, padding=period // 2)[:, 0] for x in (difference * inside, inside))
    return difference - total / count.clamp_min(1e-6)


def _folded(difference: Tensor, area: Tensor, period: int) -> tuple[Tensor, float]:
    """Return the repeating part of a difference [C, H, W] in an area, for the whole image, and its share of variance.

    Its mean in the area is 0.
    """
    y, x = (torch.arange(size, device=area.device) % period for size in area.shape)
    cells = y[:, None] * period + x
    cell = cells[area]
    folded = difference.new_zeros(len(difference), period**2)
    count = torch.bincount(cell, minlength=period**2)
    folded.index_add_(1, cell, difference[:, area])
    folded = folded / count.clamp_min(1)
    there = count > 0  # an area such as a border need not have every cell
    folded = (folded - folded[:, there].mean(1, keepdim=True)).where(there, 0)
    varies = difference[:, area].var(1, correction=0).sum()
    return folded[:, cells], float(folded[:, cell].square().mean(1).sum() / varies) if float(varies) else 0.0
