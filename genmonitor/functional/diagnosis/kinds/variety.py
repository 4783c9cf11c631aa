# SPDX-License-Identifier: Apache-2.0
"""Faults that show only in many images: too little variety, wrong proportions, parts missing in some, copies."""

from __future__ import annotations

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.kinds.base import PART, PER_PIXEL, Kind, random_choice

SAME_COLOR = 0.05
"""Part of the range within which values count as one color."""


class LessVaried(Kind):
    """Images are closer to the mean image."""

    name, unit, strengths = "less_varied", "of the spread", (0.1, 0.2, 0.35, 0.5, 0.75)
    words, change = "images vary {left} % as much as real ones", "images move toward the mean image by the part s"
    cause = "truncation or guidance, which trade variety for fidelity; a loss of squared error per pixel, which averages what it cannot tell apart"
    source = (
        "Brock et al., 'Large Scale GAN Training for High Fidelity Natural Image Synthesis' (BigGAN), ICLR 2019, arXiv 1809.11096; "
        "Ho and Salimans, 'Classifier-Free Diffusion Guidance', arXiv 2207.12598; "
        "Dosovitskiy and Brox, 'Generating Images with Perceptual Similarity Metrics based on Deep Networks', NeurIPS 2016, arXiv 1602.02644"
    )
    remedy = f"are samples truncated or guided? Then less of it; {PER_PIXEL}"
    of_pixels, bounds = False, PART

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        mean = images.mean(0)
        return mean + (1 - strength) * (images - mean)


class Blank(Kind):
    """An area is one color in some of the images."""

    name, unit, strengths = "blank", "of the images", (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
    words = "blank in {percent} % of the images"
    change = "the area is one color in s of the images: that of the generated ones that vary least"
    remedy = "look at the samples: features that are always zero, or values that are clipped?"
    bounds = PART

    def __init__(self, color: Tensor | None = None) -> None:
        self.color = color

    def measured(self, fake: Tensor, real: Tensor, area: Tensor) -> Kind | None:
        """Find the color that fills the area in more generated than real images."""
        if int(area.sum()) < 2:
            return None
        fake_colors, real_colors = (_plain_colors(x[:, :, area]) for x in (fake, real))
        if not len(fake_colors):
            return None
        near = [(torch.cdist(fake_colors, x) < SAME_COLOR).sum(1) for x in (fake_colors, real_colors)]
        share, usual = near[0] / len(fake), near[1] / len(real)
        most = (share - usual).argmax()
        # a plain color in nearly all generated images, and in most real ones, is a changed color, not missing content
        if float(share[most]) > 0.9 and 2 * len(real_colors) > len(real):
            return None
        return Blank(fake_colors[most].view(-1, 1, 1))

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        assert self.color is not None
        out = images.clone()
        out[random_choice(images, strength, generator)] = self.color
        return out


def _plain_colors(inside: Tensor) -> Tensor:
    """Return the colors [K, C] of the images that hardly vary within an area, from its values [N, C, S]."""
    return inside[inside.std(2).amax(1) < SAME_COLOR].mean(2)


class Misfit(Kind):
    """An area is from another image. It is correct by itself and shows at its edge, so a whole image cannot have it."""

    name, unit, strengths = "misfit", "of the images", (0.3, 0.6, 1.0)
    words, change = "right by itself, but does not fit what is around it", "the area is that of another real image"
    cause = "convolutions alone, which see only what is near"
    source = "Zhang et al., 'Self-Attention Generative Adversarial Networks', ICML 2019, arXiv 1805.08318"
    remedy = "does each pixel depend on the whole image? If not, a larger receptive field, or attention"
    of_pixels, of_parts, bounds = False, True, PART

    def apply(self, images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        chosen, out = random_choice(images, strength, generator), images.clone()
        out[chosen] = images[chosen.roll(1)]
        return out


class Modes(Kind):
    """Single images are correct, but some kinds of them are too rare or too frequent."""

    name, unit = "modes", "of the distance"
    words = "right images in wrong proportions"
    change = "real images get weights that bring them closest to the generated ones"
    cause = "mode collapse: some kinds of images are never drawn"
    source = (
        "Metz et al., 'Unrolled Generative Adversarial Networks', ICLR 2017, arXiv 1611.02163; "
        "Bau et al., 'Seeing What a GAN Cannot Generate', ICCV 2019"
    )
    remedy = "look at the real images that are too rare, `too_rare` of the diagnosis: are they rare in training too? Then balance the classes"
    changes_images = False


class Copies(Kind):
    """Images repeat real images; or each other, for which the advice is that of wrong proportions."""

    name = "copies"
    words = "{percent} % {unit}"
    change = "nothing: images nearer to another than half of what is usual are counted, less those among real images"
    cause = "memorization of training images, most of all of frequent ones"
    source = "Carlini et al., 'Extracting Training Data from Diffusion Models', USENIX Security 2023, arXiv 2301.13188"
    remedy = "are there duplicates among the training images? Then remove them; stop earlier"
    changes_images = False
