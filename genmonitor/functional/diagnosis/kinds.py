# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""What each kind of fault is called, how it is found, what usually causes it, who says so, and what to try."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of fault for readers.

    Attributes:
        words: with {s} for the strength, {percent} for it in percent, {left} for what of 100 % is left, {unit}.
        change: how the fault is put into real images, where its strength is s.
        cause: the usual one, as its source has it; empty where none is known that a source bears out.
        source: of the cause.
        remedy: what to try.
    """

    words: str
    change: str
    cause: str = ""
    source: str = ""
    remedy: str = ""


_LIN = "Lin et al., 'Common Diffusion Noise Schedules and Sample Steps are Flawed', WACV 2024, arXiv 2305.08891"
_ODENA = "Odena et al., 'Deconvolution and Checkerboard Artifacts', Distill 2016, doi 10.23915/distill.00003"
_SAHARIA = (
    "Saharia et al., 'Photorealistic Text-to-Image Diffusion Models with Deep Language Understanding' (Imagen), "
    "NeurIPS 2022, arXiv 2205.11487"
)
_DOSOVITSKIY = (
    "Dosovitskiy and Brox, 'Generating Images with Perceptual Similarity Metrics based on Deep Networks', "
    "NeurIPS 2016, arXiv 1602.02644"
)
_WANG = (
    "Wang et al., 'Real-ESRGAN: Training Real-World Blind Super-Resolution with Pure Synthetic Data', "
    "ICCV Workshops 2021, arXiv 2107.10833"
)
_SONG = "Song et al., 'Denoising Diffusion Implicit Models', ICLR 2021, arXiv 2010.02502"
_JOLICOEUR = (
    "Jolicoeur-Martineau et al., 'Adversarial score matching and improved sampling for image generation', "
    "ICLR 2021, arXiv 2009.05475"
)
_PYTORCH = "github.com/pytorch/pytorch/issues/34808"
_BROCK = (
    "Brock et al., 'Large Scale GAN Training for High Fidelity Natural Image Synthesis' (BigGAN), "
    "ICLR 2019, arXiv 1809.11096"
)
_HO = "Ho and Salimans, 'Classifier-Free Diffusion Guidance', arXiv 2207.12598"
_METZ = "Metz et al., 'Unrolled Generative Adversarial Networks', ICLR 2017, arXiv 1611.02163"
_BAU = "Bau et al., 'Seeing What a GAN Cannot Generate', ICCV 2019"
_ZHANG = "Zhang et al., 'Self-Attention Generative Adversarial Networks', ICML 2019, arXiv 1805.08318"
_CARLINI = "Carlini et al., 'Extracting Training Data from Diffusion Models', USENIX Security 2023, arXiv 2301.13188"

_SCHEDULE = (
    "a noise schedule that leaves signal at its last step, so that samples keep to medium brightness (diffusion)"
)
_NORMALIZATION = "a schedule of zero terminal SNR (diffusion); the same normalization of training and generated images"
_AVERAGING = "a loss of squared error per pixel, which averages what it cannot tell apart"
_PERCEPTUAL = "a perceptual or adversarial loss beside that per pixel"
_GUIDANCE = "guidance that is too strong and saturates images (diffusion)"
_RANGE = "compare the range of the output's activation with that of the training images"
_STROKES = "compare how training images were resized with the generator's resolution"

KINDS: dict[str, Kind] = {
    "brighter": Kind("brightness + {s} of the range", "s is added to each value", _SCHEDULE, _LIN, _NORMALIZATION),
    "darker": Kind("brightness − {s} of the range", "s is taken from each value", _SCHEDULE, _LIN, _NORMALIZATION),
    "color": Kind("{channel} {sign} {s} of the range", "s is added along the direction in which the channels' means differ", _SCHEDULE, _LIN, f"compare each channel's mean before and after normalization; {_NORMALIZATION}"),
    "faded": Kind("contrast − {percent} %", "values move toward the image's mean, zero or the middle of the range by the part s", "", "", f"{_RANGE}; for an autoencoder, {_PERCEPTUAL}"),
    "stronger": Kind("contrast + {percent} %", "values move away from the image's mean, zero or the middle of the range by the part s", _GUIDANCE, _SAHARIA, "less guidance, or dynamic thresholding"),
    "blurred": Kind("blurred, σ {s} px", "a Gaussian of σ = s pixels blurs images", _AVERAGING, _DOSOVITSKIY, _PERCEPTUAL),
    "sharpened": Kind("sharpened by {percent} %", "what a blur of 1 pixel takes away is added, times s", "training images that were sharpened, or sharpening of what is generated", _WANG, "train on images as they are; look for a step that sharpens"),
    "noisy": Kind("noise {s} of the range", "Gaussian noise of s is added to each value", "too few steps of a sampler that adds noise, or no denoising after the last one (diffusion)", f"{_SONG}; {_JOLICOEUR}", "more steps, a deterministic sampler, no noise at the last step"),
    "periodic": Kind("pattern of {period}, amplitude {s} of the range", "s times the mean difference is added, folded at the period", "transposed convolutions whose kernel is no multiple of their stride", _ODENA, "resize, then convolve; or a kernel that is a multiple of the stride"),
    "shifted": Kind("shifted by {s} {unit}", "images move by s whole pixels; the border is repeated", "resizing to the nearest pixel, which may move images", _PYTORCH, "look at padding, cropping, and how images are resized"),
    "blank": Kind("blank in {percent} % of the images", "the area is one color in s of the images: that of the generated ones that vary least", "", "", "look at the samples: features that are always zero, or values that are clipped?"),
    "clipped": Kind("clipped by {s} {unit}", "values beyond s of the range are cut off, at the top or at the bottom", "", "", _RANGE),
    "posterized": Kind("posterized to {s} levels", "values are rounded to s levels", "", "", "convert to integers once, at the end"),
    "thicker": Kind("bright parts thicker by {s} px", "what is bright grows by s pixels, what is dark shrinks", "", "", _STROKES),
    "thinner": Kind("bright parts thinner by {s} px", "what is bright shrinks by s pixels, what is dark grows", "", "", _STROKES),
    "less_varied": Kind("images vary {left} % as much as real ones", "images move toward the mean image by the part s", f"truncation (GAN) or guidance (diffusion), which trade variety for fidelity; {_AVERAGING} (autoencoders)", f"{_BROCK}; {_HO}; {_DOSOVITSKIY}", f"less truncation or guidance; {_PERCEPTUAL}"),
    "modes": Kind("right images in wrong proportions", "real images get weights that bring them closest to the generated ones", "mode collapse (GAN): some kinds of images are never drawn", f"{_METZ}; {_BAU}", "look at the real images that are too rare, `too_rare` of the diagnosis; balance the classes"),
    "misfit": Kind("right by itself, but does not fit what is around it", "the area is that of another real image", "convolutions alone, which see only what is near", _ZHANG, "a larger receptive field, or attention"),
    "copies": Kind("{percent} % {unit}", "nothing: images nearer to another one than half of what is usual are counted, less those that real images have", "mode collapse where they repeat each other (GAN), memorization of training images, above all of those that come often, where they repeat real ones (diffusion)", f"{_METZ}; {_CARLINI}", "remove duplicates from the training images; stop earlier"),
}  # fmt: skip
"""By name, of the package's own kinds."""


def in_words(name: str, strength: float, unit: str) -> str:
    """Say a kind with its strength in a few words; of a user's own kinds, name, strength and unit.

    Example:
        >>> in_words("blurred", 0.82, "px (σ)"), in_words("color", -0.1, "of the range in red")
        ('blurred, σ 0.82 px', 'red − 0.1 of the range')
        >>> in_words("vignette", 0.3, "of the range")
        'vignette 0.3 of the range'
    """
    if name not in KINDS:
        return f"{name} {strength:.2g} {unit}"
    size = abs(strength)
    return KINDS[name].words.format(
        s=f"{size:.2g}",
        percent=f"{100 * size:.0f}",
        left=f"{100 * (1 - size):.0f}",
        unit=unit,
        sign="−" if strength < 0 else "+",
        channel=unit.rpartition(" in ")[2],
        period=unit.rpartition(", ")[2],
    )
