# SPDX-License-Identifier: Apache-2.0
"""The faults that `diagnosis.py` plants in real images: those that a kind describes, others, and none.

They are written apart from the package's own fault models, which must recognize them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from diagnosis_images import ImageSet
from scipy.ndimage import gaussian_filter
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, max_pool2d, pad

Spoil = Callable[[Tensor, float, torch.Generator], Tensor]


@dataclass(frozen=True)
class Fault:
    """A fault to plant.

    Attributes:
        spoil: images [n, c, h, w], a strength and a generator -> images of the same shape.
        strengths: weak, middle, strong.
        names: kinds that describe it; the first is the one whose strength is compared.
        color: whether it needs colors.
        local: whether it can be planted in an area.
    """

    spoil: Spoil
    strengths: tuple[float, float, float]
    names: tuple[str, ...]
    color: bool = False
    local: bool = True


def blurred(x: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """Blur by a Gaussian of so many pixels."""
    return torch.from_numpy(gaussian_filter(x.numpy(), (0, 0, sigma, sigma), mode="nearest"))


def contrast(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Multiply what an image differs from its own mean by."""
    mean = x.mean((2, 3), keepdim=True)
    return mean + (1 + s) * (x - mean)


def colored(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Add red."""
    return x + s * torch.tensor([1.0, 0, 0])[:, None, None]


def checkerboard(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Add a checkerboard of single pixels."""
    y, across = torch.meshgrid(torch.arange(x.shape[2]), torch.arange(x.shape[3]), indexing="ij")
    return x + s * (1 - 2 * ((y + across) % 2))


def shifted(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Move to the left, with the right edge repeated."""
    return pad(x, (0, int(s), 0, 0), "replicate")[..., int(s) :]


def blank(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Blank so many of the images."""
    return torch.where(some_of(x, s, generator), x.min(), x)


def some_of(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return a mask [n, 1, 1, 1] of so many of the images."""
    return (torch.randperm(len(x), generator=generator) < share * len(x))[:, None, None, None]


def posterized(x: Tensor, levels: float, generator: torch.Generator) -> Tensor:
    """Round to so many levels."""
    return (x * (levels - 1)).round() / (levels - 1)


def power(x: Tensor, gamma: float, generator: torch.Generator) -> Tensor:
    """Raise brightness to a power."""
    return x.clamp(0, 1) ** gamma


def thicker(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Mix in so much of the brightest of 3×3 neighbors."""
    return (1 - s) * x + s * max_pool2d(x, 3, 1, 1)


def thinner(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Mix in so much of the darkest of 3×3 neighbors."""
    return (1 - s) * x - s * max_pool2d(-x, 3, 1, 1)


def from_others(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Put other images in the place of so many: planted in an area, it does not fit the rest."""
    return torch.where(some_of(x, s, generator), x.roll(1, 0), x)


def few(x: Tensor, kept: float, generator: torch.Generator) -> Tensor:
    """Draw the same few of the images over and over."""
    return x[torch.randint(int(kept), (len(x),), generator=generator)]


def noisy(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Add Gaussian noise."""
    return x + s * torch.randn(x.shape, generator=generator)


def less_varied(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Draw images towards their mean."""
    return x.mean(0) + (1 - s) * (x - x.mean(0))


KINDS: dict[str, Fault] = {
    "brighter": Fault(lambda x, s, g: x + s, (0.03, 0.06, 0.12), ("brighter",)),
    "darker": Fault(lambda x, s, g: x - s, (0.03, 0.06, 0.12), ("darker",)),
    "red": Fault(colored, (0.03, 0.06, 0.12), ("color",), color=True),
    "faded": Fault(lambda x, s, g: contrast(x, -s, g), (0.1, 0.2, 0.35), ("faded",)),
    "too strong": Fault(contrast, (0.1, 0.2, 0.35), ("stronger",)),
    "blurred": Fault(blurred, (0.5, 0.8, 1.2), ("blurred",)),
    "oversharp": Fault(lambda x, s, g: x + s * (x - blurred(x, 1.0, g)), (0.2, 0.4, 0.8), ("sharpened",)),
    "noisy": Fault(noisy, (0.02, 0.05, 0.1), ("noisy",)),
    "periodic": Fault(checkerboard, (0.02, 0.05, 0.1), ("periodic",)),
    "shifted": Fault(shifted, (1, 2, 3), ("shifted",)),
    "missing in some": Fault(blank, (0.05, 0.1, 0.2), ("blank",)),
    "clipped": Fault(lambda x, s, g: x.clamp(s, 1 - s), (0.1, 0.2, 0.3), ("clipped",)),
    "posterized": Fault(posterized, (16, 8, 4), ("posterized",)),
    "thicker": Fault(thicker, (0.3, 0.6, 1.0), ("thicker",)),
    "thinner": Fault(thinner, (0.3, 0.6, 1.0), ("thinner",)),
    "less varied": Fault(less_varied, (0.1, 0.2, 0.4), ("less_varied",)),
    "parts that do not fit": Fault(from_others, (0.3, 0.6, 1.0), ("misfit",)),
    "few images": Fault(few, (200, 100, 30), ("copies", "modes"), local=False),
}
"""What a kind describes; see `missing_class` for modes, which needs classes."""


def boxed(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Blur by the mean of 3×3 neighbors."""
    return (1 - s) * x + s * avg_pool2d(x, 3, 1, 1, count_include_pad=False)


def salt_and_pepper(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Make so many of the pixels black or white."""
    u = torch.rand((len(x), 1, *x.shape[2:]), generator=generator)
    return torch.where(u < s / 2, 0.0, torch.where(u > 1 - s / 2, 1.0, x))


def small_again(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Sample down by so much and up again."""
    small = interpolate(x, scale_factor=1 / s, mode="bilinear", antialias=True)
    return interpolate(small, size=x.shape[2:], mode="bilinear")


def vignette(x: Tensor, s: float, generator: torch.Generator) -> Tensor:
    """Darken towards the corners."""
    y, across = torch.meshgrid(*(torch.linspace(-1, 1, side) for side in x.shape[2:]), indexing="ij")
    return x * (1 - s * (y**2 + across**2) / 2)


OTHERS: dict[str, Fault] = {
    "gamma": Fault(power, (1.2, 1.5, 2.0), ("darker", "stronger", "thinner")),
    "box blur": Fault(boxed, (0.25, 0.5, 1.0), ("blurred",)),
    "down and up": Fault(small_again, (1.25, 1.5, 2.0), ("blurred",)),
    "salt and pepper": Fault(salt_and_pepper, (0.005, 0.02, 0.05), ("noisy",)),
    "stripes": Fault(
        lambda x, s, g: x + s * (1 - 2 * (torch.arange(x.shape[3]) % 2)), (0.02, 0.05, 0.1), ("periodic",)
    ),
    "blocks of 8": Fault(
        lambda x, s, g: x - s * (torch.arange(x.shape[3]) % 8 == 0), (0.03, 0.06, 0.12), ("periodic", "darker")
    ),
    "vignette": Fault(vignette, (0.2, 0.4, 0.8), ("darker", "faded")),
}
"""What no kind describes exactly, and the kinds that a person would call it by."""

PAIRS = (
    ("blurred", "brighter"),
    ("faded", "noisy"),
    ("noisy", "darker"),
    ("blurred", "periodic"),
    ("shifted", "too strong"),
    ("less varied", "blurred"),
)


def planted(fault: Fault, x: Tensor, s: float, inside: Tensor, seed: int) -> Tensor:
    """Return images with a fault where a mask [h, w] says so."""
    return torch.where(inside, fault.spoil(x, s, torch.Generator().manual_seed(seed)), x)


def missing_class(images: ImageSet, share: float, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return n images of a generator that lacks so much of one class, and n real ones."""
    order = torch.randperm(len(images.images), generator=generator)
    fake, real = order[n:], order[:n]
    classes = int(images.labels.max()) + 1
    of_class = images.labels[fake] == int(torch.randint(classes, (), generator=generator))
    fake = fake[~(of_class & (torch.rand(len(fake), generator=generator) < share))]
    return images.images[fake[:n]].clone(), images.images[real]


def wrong_proportions(images: ImageSet, wrong: str, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return n images of a generator that lacks classes, or draws one for half of its images, and n real ones."""
    if wrong == "one class is missing":
        return missing_class(images, 1.0, n, generator)
    order = torch.randperm(len(images.images), generator=generator)
    fake, real = order[n:], order[:n]
    labels, classes = images.labels[fake], int(images.labels.max()) + 1
    if wrong == "one class is half":
        chosen = labels == int(torch.randint(classes, (), generator=generator))
        fake = torch.cat([fake[chosen][: n // 2], fake[~chosen][: n - n // 2]])
    else:
        fake = fake[labels < (classes + 1) // 2][:n]
    return images.images[fake].clone(), images.images[real]


def random_area(height: int, width: int, generator: torch.Generator) -> Tensor:
    """Return a mask bool [h, w] of a rectangle of 7 to 12 pixels a side, one in four of them the border's 2 pixels."""
    inside = torch.zeros(height, width, dtype=torch.bool)
    if float(torch.rand((), generator=generator)) < 0.25:
        inside[:] = True
        inside[2:-2, 2:-2] = False
        return inside
    high, wide = torch.randint(7, 13, (2,), generator=generator).tolist()
    top = int(torch.randint(height - high + 1, (), generator=generator))
    left = int(torch.randint(width - wide + 1, (), generator=generator))
    inside[top : top + high, left : left + wide] = True
    return inside
