# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""What each kind of fault is called, what usually causes it, who says so, and what to try."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of fault for readers.

    Attributes:
        words: with {s} for the strength, {percent} for it in percent, {left} for what of 100 % is left, {unit}.
        cause: the usual one; empty where none is known well enough to be named.
        source: of the cause.
        remedy: what to try.
    """

    words: str
    cause: str = ""
    source: str = ""
    remedy: str = ""


_LIN = "Lin et al., 'Common Diffusion Noise Schedules and Sample Steps are Flawed', WACV 2024, arXiv 2305.08891"
_ODENA = "Odena et al., 'Deconvolution and Checkerboard Artifacts', Distill 2016"
_SAHARIA = "Saharia et al., 'Photorealistic Text-to-Image Diffusion Models' (Imagen), NeurIPS 2022, arXiv 2205.11487"
_LARSEN = "Larsen et al., 'Autoencoding beyond pixels using a learned similarity metric', ICML 2016, arXiv 1512.09300"
_KARRAS = (
    "Karras et al., 'Elucidating the Design Space of Diffusion-Based Generative Models', NeurIPS 2022, arXiv 2206.00364"
)
_BROCK = "Brock et al., 'Large Scale GAN Training' (BigGAN), ICLR 2019, arXiv 1809.11096"
_METZ = "Metz et al., 'Unrolled Generative Adversarial Networks', ICLR 2017, arXiv 1611.02163"
_ZHANG = "Zhang et al., 'Self-Attention Generative Adversarial Networks', ICML 2019, arXiv 1805.08318"
_CARLINI = "Carlini et al., 'Extracting Training Data from Diffusion Models', USENIX Security 2023, arXiv 2301.13188"

_SCHEDULE = (
    "a noise schedule that leaves signal at the last step (diffusion), or another normalization than in training"
)
_GUIDANCE = "guidance that is too strong"

KINDS: dict[str, Kind] = {
    "brighter": Kind("brightness + {s} of the range", _SCHEDULE, _LIN, "a schedule of zero terminal SNR; the same normalization both ways"),
    "darker": Kind("brightness − {s} of the range", _SCHEDULE, _LIN, "a schedule of zero terminal SNR; the same normalization both ways"),
    "color": Kind("{channel} {sign} {s} of the range", _SCHEDULE, _LIN, "compare each channel's mean before and after normalization"),
    "faded": Kind("contrast − {percent} %", "", "", "check the range of the last activation against that of the data"),
    "stronger": Kind("contrast + {percent} %", _GUIDANCE, _SAHARIA, "less guidance, or dynamic thresholding"),
    "blurred": Kind("blurred, σ {s} px", "a loss of squared error per pixel, as of a VAE", _LARSEN, "a perceptual or adversarial loss; more features in the last block"),
    "sharpened": Kind("sharpened by {percent} %", _GUIDANCE, _SAHARIA, "less guidance; look for an upsampler that sharpens"),
    "noisy": Kind("noise {s} of the range", "too few denoising steps, or a last step that adds noise (diffusion)", _KARRAS, "more steps; no noise at the last one"),
    "periodic": Kind("pattern of {period}, amplitude {s} of the range", "transposed convolutions whose kernel is no multiple of their stride", _ODENA, "resize, then convolve; or a kernel that is a multiple of the stride"),
    "shifted": Kind("shifted by {s} {unit}", "", "", "check padding, cropping and the alignment of resizing"),
    "blank": Kind("blank in {percent} % of the images", "", "", "look for features that are always zero, and for clipping"),
    "clipped": Kind("clipped by {s} {unit}", "", "", "check the output's activation and the range of the data"),
    "posterized": Kind("posterized to {s} levels", "", "", "convert to 8 bits once, at the end"),
    "thicker": Kind("strokes thicker by {s} px", "", "", "compare the data's preprocessing with the generator's resolution"),
    "thinner": Kind("strokes thinner by {s} px", "", "", "compare the data's preprocessing with the generator's resolution"),
    "less_varied": Kind("spread {left} % of real", "truncation or guidance, which trade variety for quality", _BROCK, "less of either"),
    "modes": Kind("right images in wrong proportions", "mode collapse, or classes out of balance", _METZ, "look at the real images that are too rare; balance the classes"),
    "misfit": Kind("right by itself, but does not fit what is around it", "convolutions that do not see far enough", _ZHANG, "a larger receptive field, or attention"),
    "copies": Kind("{percent} % {unit}", "memorization of data that are few or repeated", _CARLINI, "remove duplicates from the data; stop earlier"),
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
