# SPDX-License-Identifier: Apache-2.0
"""Faults to plant in images that no choice of the package was made on, and what a person would say of each.

They are written apart from the package's own fault models. What a person would say was written down before any result.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter, median_filter
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, conv2d, grid_sample, interpolate, pad


class Fault(NamedTuple):
    """A fault to plant; the kinds that are right and acceptable, and words of readings that a person would say.

    `place` has the parts of the height and the width between which it is. `classes` has how often images of the first
    class, and of the others, are drawn. A fault of no kind has none that is right.
    """

    spoil: Callable[[Tensor, torch.Generator], Tensor]
    right: tuple[str, ...]
    acceptable: tuple[str, ...] = ()
    words: str = "nothing"
    color: bool = False
    place: tuple[float, float, float, float] | None = None
    classes: tuple[float, float] = (1.0, 1.0)
    leaves_out: tuple[str, ...] = ()


def blur(x: Tensor, sigma: float) -> Tensor:
    """Blur by a Gaussian."""
    return torch.from_numpy(gaussian_filter(x.numpy(), (0, 0, sigma, sigma), mode="nearest"))


def turned(x: Tensor, angle: float, scale: float) -> Tensor:
    """Turn and enlarge around the center."""
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    grid = affine_grid(
        torch.tensor([[[cos, -sin, 0], [sin, cos, 0]]]).float().expand(len(x), -1, -1),
        list(x.shape),
        align_corners=False,
    )
    return grid_sample(x, grid, padding_mode="border", align_corners=False)


def hue(x: Tensor, part: float) -> Tensor:
    """Turn colors around gray by a part of the circle."""
    cos, sin = np.cos(2 * np.pi * part), np.sin(2 * np.pi * part) / np.sqrt(3)
    a = (1 - cos) / 3
    mixed = [[cos + a, a - sin, a + sin], [a + sin, cos + a, a - sin], [a - sin, a + sin, cos + a]]
    return torch.einsum("ij,njhw->nihw", torch.tensor(mixed).float(), x)


def grayer(x: Tensor, part: float) -> Tensor:
    """Take a part of the saturation away."""
    return part * x.mean(1, keepdim=True) + (1 - part) * x


def compressed(x: Tensor, quality: int) -> Tensor:
    """Save and read as JPEG."""
    out = []
    for image in (255 * x.clamp(0, 1)).round().byte().permute(0, 2, 3, 1).numpy():
        file = io.BytesIO()
        Image.fromarray(image.squeeze(-1) if image.shape[2] == 1 else image).save(file, "JPEG", quality=quality)
        out.append(np.asarray(Image.open(file, formats=["JPEG"])).reshape(image.shape))
    return torch.from_numpy(np.stack(out)).permute(0, 3, 1, 2).float() / 255


def some(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return a mask of some images."""
    return torch.rand(len(x), 1, 1, 1, generator=generator) < share


def lower_left(x: Tensor, spoil: Callable[[Tensor], Tensor]) -> Tensor:
    """Plant in a rectangle."""
    height, width = x.shape[2:]
    place = slice(height // 2, height - 2), slice(width // 8, width // 2)
    out = x.clone()
    out[:, :, *place] = spoil(x)[:, :, *place]
    return out


def checkerboard(x: Tensor) -> Tensor:
    """Return ±1 in turn."""
    return 1 - 2.0 * ((torch.arange(x.shape[2])[:, None] + torch.arange(x.shape[3])) % 2)


def vignette(x: Tensor, size: float) -> Tensor:
    """Darken the corners."""
    y, across = (torch.linspace(-1, 1, side) ** 2 for side in x.shape[2:])
    return x * (1 - size * (y[:, None] + across) / 2)


def salt(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Make some pixels black or white."""
    u = torch.rand(len(x), 1, *x.shape[2:], generator=generator)
    return torch.where(u < share / 2, 0.0, torch.where(u > 1 - share / 2, 1.0, x))


def quarters_exchanged(x: Tensor) -> Tensor:
    """Exchange the upper left with the lower right quarter."""
    height, width = (size // 2 for size in x.shape[2:])
    upper, left = torch.arange(x.shape[2])[:, None] < height, torch.arange(x.shape[3]) < width
    return torch.where(upper == left, x.roll((height, width), (2, 3)), x)


def scratched(x: Tensor, generator: torch.Generator, share: float = 0.4) -> Tensor:
    """Draw a line over the whole width of some images."""
    row = torch.randint(x.shape[2], (len(x), 1, 1, 1), generator=generator)
    line = torch.arange(x.shape[2])[:, None] == row
    return torch.where(line & some(x, share, generator), 1 - x.mean((1, 2, 3), keepdim=True), x)


def noise(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator)


def moving(x: Tensor) -> Tensor:
    """Blur along rows."""
    taps = torch.full((x.shape[1], 1, 1, 5), 0.2)
    return conv2d(pad(x, (2, 2, 0, 0), "replicate"), taps, groups=x.shape[1])


def larger_pixels(x: Tensor) -> Tensor:
    return interpolate(avg_pool2d(x, 2), scale_factor=2, mode="nearest")


EDGES, TONES = "edges|detail|grain|flat", "brightest|darkest|brightness|contrast"
JPEG = "grain|flat|eighth|colors|values"
RED = torch.tensor([1.0, 0, 0])[:, None, None]
FAULTS = {
    "brighter": Fault(lambda x, g: x + 0.08, ("brighter",), ("clipped",), TONES),
    "blurred": Fault(lambda x, g: blur(x, 0.8), ("blurred",), (), EDGES),
    "noisy": Fault(lambda x, g: x + 0.05 * noise(x, g), ("noisy",), (), EDGES),
    "faded": Fault(lambda x, g: 0.7 * x + 0.3 * x.mean((1, 2, 3), keepdim=True), ("faded",), ("clipped",), TONES),
    "sharpened": Fault(lambda x, g: 1.6 * x - 0.6 * blur(x, 1.0), ("sharpened",), ("stronger",), EDGES),
    "checkerboard": Fault(lambda x, g: x + 0.05 * checkerboard(x), ("periodic",), (), "checkerboard"),
    "red": Fault(lambda x, g: x + 0.1 * RED, ("color",), (), "red|saturation", color=True),
    "clipped": Fault(lambda x, g: x.clamp(0.2, 0.8), ("clipped",), ("faded",), TONES),
    "shifted": Fault(lambda x, g: pad(x, (0, 2, 0, 0), "replicate")[..., 2:], ("shifted",), (), "left|center"),
    "posterized": Fault(lambda x, g: (3 * x).round() / 3, ("posterized",), (), "colors|values"),
    "less varied": Fault(lambda x, g: 0.35 * x.mean(0) + 0.65 * x, ("less_varied",), ("faded",), f"mean image|{TONES}"),
    "few images": Fault(lambda x, g: x[torch.randint(60, (len(x),), generator=g)], ("copies",), ("modes",)),
    "brighter in a place": Fault(lambda x, g: lower_left(x, lambda y: y + 0.15), ("brighter",), ("color",), TONES),
    "noisy in a place": Fault(
        lambda x, g: lower_left(x, lambda y: y + 0.1 * noise(y, g)), ("noisy",), (), f"{EDGES}|traces"
    ),
    "blank in a place": Fault(
        lambda x, g: torch.where(some(x, 0.3, g), lower_left(x, lambda y: 0 * y + 0.5), x), ("blank",), ("misfit",)
    ),
    "blurred in a place": Fault(lambda x, g: lower_left(x, lambda y: blur(y, 1.3)), ("blurred",), (), EDGES),
    "blurred and darker": Fault(lambda x, g: blur(x, 0.7) - 0.08, ("blurred", "darker"), (), f"{EDGES}|{TONES}"),
    "mirrored": Fault(lambda x, g: x.flip(3), ("mirrored",), (), "left|slant"),
    "channels swapped": Fault(lambda x, g: x.flip(1), ("channels_swapped",), ("color",), "red|blue", color=True),
    "hue turned": Fault(lambda x, g: hue(x, 0.15), ("hue",), ("color",), "red|green|blue", color=True),
    "desaturated": Fault(
        lambda x, g: 0.7 * x.mean(1, keepdim=True) + 0.3 * x, ("desaturated",), (), "saturation", color=True
    ),
    "gamma": Fault(lambda x, g: x.clamp(0, 1) ** 1.6, ("gamma",), ("darker", "stronger", "thinner"), TONES),
    "JPEG": Fault(
        lambda x, g: compressed(x, 20), ("compressed",), ("noisy", "periodic"), "grain|flat|eighth|colors|values"
    ),
    "pixels of 2×2": Fault(lambda x, g: larger_pixels(x), ("pixelated",), ("periodic",), f"second line|{EDGES}"),
    "turned": Fault(lambda x, g: turned(x, 0.26, 1.0), ("rotated",), ("shifted",), "slant|left|center|lie"),
    "enlarged": Fault(lambda x, g: turned(x, 0.0, 1.25), ("zoomed",), ("thicker",), "area|border"),
    "moving": Fault(lambda x, g: moving(x), (), ("blurred",), f"lie|{EDGES}"),
    "half are blurred": Fault(lambda x, g: torch.where(some(x, 0.5, g), blur(x, 1.3), x), ("blurred",), (), EDGES),
    "vignette": Fault(lambda x, g: vignette(x, 0.6), (), ("darker", "faded"), "border|corners"),
    "salt and pepper": Fault(lambda x, g: salt(x, 0.03, g), (), ("noisy",), "single|darkest|brightest|detail|edges"),
    "scratches": Fault(scratched, (), (), "row|lie|pieces|area"),
    "quarters exchanged": Fault(lambda x, g: quarters_exchanged(x), (), ("misfit",), "left|pieces|center|slant|lie"),
    "nothing": Fault(lambda x, g: x, ()),
}


def within(part: tuple[float, float, float, float], x: Tensor) -> tuple[slice, slice]:
    """Return rows and columns of a place."""
    (height, width), (top, bottom, left, right) = x.shape[2:], part
    return slice(round(top * height), round(bottom * height)), slice(round(left * width), round(right * width))


def local(part: tuple[float, float, float, float], spoil: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a fault that is planted in a place."""

    def planted(x: Tensor, generator: torch.Generator) -> Tensor:
        out = x.clone()
        out[:, :, *within(part, x)] = spoil(x)[:, :, *within(part, x)]
        return out

    return planted


def warped(x: Tensor, offset: Tensor, scale: tuple[float, float] = (1.0, 1.0), mode: str = "bicubic") -> Tensor:
    """Take each pixel from where `offset` [n, h, w, 2] says, in parts of half a side, and squeeze it."""
    grid = affine_grid(torch.eye(2, 3).expand(len(x), -1, -1), list(x.shape), align_corners=False)
    at = grid / torch.tensor(scale) + offset
    return grid_sample(x, at, mode=mode, padding_mode="border", align_corners=False).clamp(0, 1)


def smooth(x: Tensor, sigma: float, generator: torch.Generator, channels: int) -> Tensor:
    """Return smooth random fields [n, channels, h, w] of deviation 1."""
    field = blur(torch.randn(len(x), channels, *x.shape[2:], generator=generator), sigma)
    return field / field.std((2, 3), keepdim=True)


def each(x: Tensor, generator: torch.Generator, channels: int = 1) -> Tensor:
    """Return a random number between -1 and 1 for each image."""
    return 2 * torch.rand(len(x), channels, 1, 1, generator=generator) - 1


def elastic(x: Tensor, generator: torch.Generator) -> Tensor:
    """Move pixels by smooth fields of a deviation of 1.2 pixels."""
    return warped(x, 2.4 / x.shape[3] * smooth(x, 3.0, generator, 2).permute(0, 2, 3, 1))


def turned_at_random(x: Tensor, angle: float, generator: torch.Generator) -> Tensor:
    """Turn each image by up to so much."""
    return torch.cat(
        [turned(image[None], float(angle * (2 * torch.rand(1, generator=generator) - 1)), 1) for image in x]
    )


def moved_at_random(x: Tensor, most: int, generator: torch.Generator, *, wrapped: bool) -> Tensor:
    """Move each image by up to so many pixels."""
    by = torch.randint(-most, most + 1, (len(x), 2), generator=generator).tolist()
    wide = x if wrapped else pad(x, (most,) * 4, "replicate")
    rolled = torch.stack([image.roll(shift, (1, 2)) for image, shift in zip(wide, by, strict=True)])
    return rolled if wrapped else rolled[..., most:-most, most:-most]


def squares(x: Tensor, size: int, value: float, generator: torch.Generator) -> Tensor:
    """Put a square of one gray at a random place of each image."""
    top, left = (torch.randint(side - size + 1, (len(x), 1, 1, 1), generator=generator) for side in x.shape[2:])
    y, across = torch.arange(x.shape[2])[:, None], torch.arange(x.shape[3])
    inside = (y >= top) & (y < top + size) & (across >= left) & (across < left + size)
    return torch.where(inside, value, x)


def disc(x: Tensor, generator: torch.Generator) -> Tensor:
    """Cover the middle of the lower part of half of the images."""
    y, across = (torch.arange(side) / side for side in x.shape[2:])
    return torch.where(((y[:, None] - 0.7) ** 2 + (across - 0.5) ** 2 < 0.0484) & some(x, 0.5, generator), 0.4, x)


def framed(x: Tensor, width: int) -> Tensor:
    """Draw a black frame."""
    return pad(x[..., width:-width, width:-width], (width,) * 4)


def low_pass(x: Tensor, cut: float) -> Tensor:
    """Leave out all frequencies above a part of the highest, sharply, so that edges ring."""
    y, across = (torch.fft.fftfreq(side).abs() for side in x.shape[2:])
    kept = torch.hypot(y[:, None], across) < cut / 2
    return torch.fft.ifft2(torch.fft.fft2(x) * kept).real.clamp(0, 1)


def every(x: Tensor, step: int, dim: int) -> Tensor:
    """Return a mask [h, 1] or [1, w] of every so manieth row or column."""
    lines = torch.arange(x.shape[dim]) % step == step - 1
    return lines[:, None] if dim == 2 else lines[None]


def cross(x: Tensor) -> Tensor:
    """Return a mask of a cross in the lower right."""
    rows, columns = within((0.55, 0.95, 0.55, 0.95), x)
    out = torch.zeros(x.shape[2:], dtype=torch.bool)
    middle, center = (rows.start + rows.stop) // 2, (columns.start + columns.stop) // 2
    out[rows, center - 1 : center + 1] = out[middle - 1 : middle + 1, columns] = True
    return out


def oblique(x: Tensor, period: float) -> Tensor:
    """Return waves along a slanted direction."""
    y, across = torch.arange(x.shape[2])[:, None], torch.arange(x.shape[3])
    return (2 * np.pi * (0.83 * across + 0.56 * y) / period).cos()


def frosted(x: Tensor, generator: torch.Generator) -> Tensor:
    """Take each pixel from a neighbor at random."""
    at = torch.randint(-1, 2, (len(x), *x.shape[2:], 2), generator=generator) * 2 / torch.tensor(x.shape[2:])
    return warped(x, at, mode="nearest")


def dithered(x: Tensor, levels: int) -> Tensor:
    """Round to few levels after an ordered pattern."""
    steps = torch.tensor([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]]) / 16 - 0.47
    tiled = steps.repeat(*(-(-side // 4) for side in x.shape[2:]))[: x.shape[2], : x.shape[3]]
    return ((levels - 1) * x + tiled).round().clamp(0, levels - 1) / (levels - 1)


def fading(x: Tensor) -> Tensor:
    """Return how white the lowest 40 % are, more and more."""
    return ((torch.arange(x.shape[2]) / x.shape[2] - 0.6) / 0.4).clamp(0, 1)[:, None]


def sloping(x: Tensor, size: float, generator: torch.Generator) -> Tensor:
    """Add shading that slopes in a direction of its own in each image."""
    y, across = (torch.linspace(-1, 1, side) for side in x.shape[2:])
    angle = np.pi * each(x, generator)
    return x + size * (angle.cos() * across + angle.sin() * y[:, None])


def chroma(x: Tensor) -> Tensor:
    return x - x.mean(1, keepdim=True)


UPPER_RIGHT, CENTER, BOTTOM, LEFT = (0, 0.4, 0.55, 1), (0.3, 0.7, 0.3, 0.7), (0.75, 1, 0, 1), (0, 1, 0, 0.5)
LOWER_RIGHT, UPPER_LEFT, MIDDLE, RIGHT = (
    (0.5, 1, 0.5, 1),
    (0, 0.4, 0, 0.4),
    (0.25, 0.75, 0.25, 0.75),
    (0.2, 0.8, 0.5, 1),
)
EACH_WAY = "symmetry|center of|half brighter|border"
"""Readings by which a person says that things are elsewhere than they should be."""
DRAWN = "pieces|holes and gaps|area of|traces"
COLORS = "saturation|red above|green above|blue above|color"
VARIES = "contrast|brightest|darkest|brightness|mean image"
BLIND_FAULTS = {
    # kinds of genmonitor, weak ones and places too
    "darker": Fault(lambda x, g: x - 0.06, ("darker",), ("clipped",), TONES),
    "weakly blurred": Fault(lambda x, g: blur(x, 0.5), ("blurred",), (), EDGES),
    "weakly noisy": Fault(lambda x, g: x + 0.03 * noise(x, g), ("noisy",), (), f"{EDGES}|traces"),
    "too much contrast": Fault(
        lambda x, g: x + 0.3 * (x - x.mean((2, 3), keepdim=True)), ("stronger",), ("clipped",), TONES
    ),
    "grid of 4": Fault(
        lambda x, g: torch.where(every(x, 4, 2) | every(x, 4, 3), x + 0.08, x), ("periodic",), (), "fourth|row"
    ),
    "gamma 0.7": Fault(lambda x, g: x**0.7, ("gamma",), ("brighter", "faded", "thicker"), TONES),
    "garish": Fault(lambda x, g: x + 0.6 * chroma(x), ("oversaturated",), ("stronger",), "saturation", color=True),
    "JPEG of 35": Fault(lambda x, g: compressed(x, 35), ("compressed",), ("noisy",), f"{JPEG}|traces"),
    "bright parts clipped": Fault(lambda x, g: x.clamp(max=0.75), ("clipped",), ("faded",), TONES),
    "some blank": Fault(
        lambda x, g: torch.where(some(x, 0.15, g), 0.5, x), ("blank",), (), "flat|contrast|detail|edges"
    ),
    "a class is missing": Fault(
        lambda x, g: x, ("modes",), (), f"Hardly ever|{COLORS}|{VARIES}|{DRAWN}", classes=(0, 1)
    ),
    "a class is doubled": Fault(
        lambda x, g: x, ("modes",), (), f"Hardly ever|{COLORS}|{VARIES}|{DRAWN}", classes=(1, 0.33)
    ),
    "darker, upper right": Fault(
        local(UPPER_RIGHT, lambda x: x - 0.12), ("darker",), ("color", "faded"), TONES, place=UPPER_RIGHT
    ),
    "blurred, center": Fault(local(CENTER, lambda x: blur(x, 1.2)), ("blurred",), (), EDGES, place=CENTER),
    "noisy, bottom": Fault(
        lambda x, g: local(BOTTOM, lambda y: y + 0.08 * noise(y, g))(x, g),
        ("noisy",),
        (),
        f"{EDGES}|traces",
        place=BOTTOM,
    ),
    "faded, left": Fault(
        local(LEFT, lambda x: x + 0.4 * (x.mean((2, 3), keepdim=True) - x)),
        ("faded",),
        ("less_varied",),
        TONES,
        place=LEFT,
    ),
    "checkerboard, lower right": Fault(
        local(LOWER_RIGHT, lambda x: x + 0.06 * checkerboard(x)), ("periodic",), (), "checkerboard", place=LOWER_RIGHT
    ),
    "some blank, upper left": Fault(
        lambda x, g: torch.where(some(x, 0.25, g), local(UPPER_LEFT, lambda y: 0 * y + 0.6)(x, g), x),
        ("blank",),
        ("misfit",),
        place=UPPER_LEFT,
    ),
    # no kind of genmonitor, in a place
    "center upside down": Fault(
        local(MIDDLE, lambda x: x.flip(2)),
        (),
        ("misfit",),
        f"{EACH_WAY}|{DRAWN}|edges",
        place=MIDDLE,
        leaves_out=("photographs", "textures"),
    ),
    "some blurred, right": Fault(
        lambda x, g: torch.where(some(x, 0.4, g), local(RIGHT, lambda y: blur(y, 1.5))(x, g), x),
        ("blurred",),
        (),
        EDGES,
        place=RIGHT,
    ),
    "cross, lower right": Fault(
        lambda x, g: torch.where(cross(x), 0.65 * x + 0.35, x),
        (),
        ("brighter", "faded", "periodic", "color"),
        f"{DRAWN}|{EDGES}|{VARIES}|lines",
        place=(0.55, 0.95, 0.55, 0.95),
    ),
    "dead rows": Fault(
        local((0.65, 0.72, 0, 1), lambda x: 0 * x),
        (),
        ("darker", "blank", "faded", "less_varied"),
        f"row|horizontal|{DRAWN}|{EDGES}|{VARIES}|nearly the same",
        place=(0.65, 0.72, 0, 1),
    ),
    "covered in half": Fault(
        disc, (), ("blank", "misfit"), f"{DRAWN}|flat|{VARIES}|half brighter", place=(0.48, 0.92, 0.28, 0.72)
    ),
    "bottom fades to white": Fault(
        lambda x, g: x + (1 - x) * fading(x),
        (),
        ("faded", "brighter", "clipped", "color"),
        f"half brighter|border|{VARIES}|flat|saturation|{DRAWN}",
        place=(0.6, 1, 0, 1),
    ),
    # no kind of genmonitor, anywhere
    "moving down": Fault(
        lambda x, g: conv2d(
            pad(x, (0, 0, 3, 3), "replicate"), torch.full((x.shape[1], 1, 7, 1), 1 / 7), groups=x.shape[1]
        ),
        (),
        ("blurred",),
        EDGES,
    ),
    "moving aslant": Fault(
        lambda x, g: conv2d(
            pad(x, (2,) * 4, "replicate"), (torch.eye(5) / 5).expand(x.shape[1], 1, 5, 5), groups=x.shape[1]
        ),
        (),
        ("blurred",),
        EDGES,
    ),
    "weak vignette": Fault(lambda x, g: vignette(x, 0.35), (), ("darker", "faded"), "border|corners"),
    "light corners": Fault(lambda x, g: 1 - vignette(1 - x, 0.5), (), ("brighter", "faded"), "border|corners|traces"),
    "weak salt and pepper": Fault(
        lambda x, g: salt(x, 0.01, g), (), ("noisy",), "single|darkest|brightest|detail|edges|grain|flat|traces|pieces"
    ),
    "pepper": Fault(
        lambda x, g: torch.where(torch.rand(x[:, :1].shape, generator=g) < 0.05, 0.0, x),
        (),
        ("noisy",),
        "single|darkest|detail|edges|grain|flat|traces|pieces|holes",
    ),
    "upright scratches": Fault(
        lambda x, g: scratched(x.mT, g, 0.6).mT,
        (),
        (),
        f"column|horizontal|{DRAWN}|{EDGES}|single|brightest",
    ),
    "left and right exchanged": Fault(
        lambda x, g: x.roll(x.shape[3] // 2, 3), (), ("misfit", "shifted"), f"{EACH_WAY}|{DRAWN}|column|edges|slant"
    ),
    "top and bottom exchanged": Fault(
        lambda x, g: x.roll(x.shape[2] // 2, 2), (), ("misfit", "shifted"), f"{EACH_WAY}|{DRAWN}|row|edges|slant"
    ),
    "elastic": Fault(elastic, (), (), f"{EDGES}|symmetry|slant|{DRAWN}|border"),
    "ghost": Fault(
        lambda x, g: 0.65 * x + 0.35 * pad(x, (4, 0, 2, 0), "replicate")[..., :-2, :-4],
        (),
        ("blurred",),
        f"{DRAWN}|{EDGES}|contrast|brightest",
    ),
    "moiré": Fault(
        lambda x, g: x + 0.08 * oblique(x, 3.3), (), ("periodic",), f"checkerboard|row|column|line|{EDGES}|traces"
    ),
    "color fringes": Fault(
        lambda x, g: torch.stack([x[:, 0].roll(-1, 2), x[:, 1], x[:, 2].roll(1, 2)], 1),
        (),
        (),
        f"{COLORS}|edges|detail",
        color=True,
    ),
    "holes": Fault(lambda x, g: squares(x, 7, 0.5, g), (), ("blank",), f"{DRAWN}|{EDGES}|{VARIES}"),
    "framed": Fault(
        lambda x, g: framed(x, 2),
        (),
        ("darker", "blank", "faded", "less_varied"),
        "border|outermost|corners|darkest|nearly the same",
        leaves_out=("letters",),  # black on black
    ),
    "mixed with others": Fault(
        lambda x, g: torch.where(some(x, 0.5, g), (x + x.roll(1, 0)) / 2, x),
        (),
        ("faded", "less_varied"),
        f"{DRAWN}|{VARIES}|flat|detail|edges",
    ),
    "too narrow": Fault(
        lambda x, g: warped(x, torch.zeros(1), (0.72, 1.0)),
        (),
        ("zoomed",),
        f"area|border|{EACH_WAY}|edges|slant|detail|flat",
    ),
    "ringing": Fault(lambda x, g: low_pass(x, 0.5), (), ("blurred", "sharpened"), f"{EDGES}|traces"),
    "rows of noise": Fault(
        lambda x, g: x + 0.05 * torch.randn(len(x), 1, x.shape[2], 1, generator=g),
        (),
        ("noisy", "periodic"),
        f"row|horizontal|{EDGES}|traces",
    ),
    "sloping shade": Fault(
        lambda x, g: sloping(x, 0.2, g), (), (), f"half brighter|border|corners|flat|grain|{VARIES}|traces"
    ),
    "four small copies": Fault(
        lambda x, g: avg_pool2d(x, 2).repeat(1, 1, 2, 2), (), ("zoomed",), f"{EACH_WAY}|{DRAWN}|{EDGES}|line"
    ),
    "some negative": Fault(
        lambda x, g: torch.where(some(x, 0.25, g), 1 - x, x), (), (), f"{VARIES}|border|area|{COLORS}"
    ),
    "hot pixels": Fault(
        lambda x, g: torch.where(
            (torch.rand(x.shape[2:], generator=torch.Generator().manual_seed(4)) < 0.01),
            1 - x.mean((2, 3), keepdim=True).round(),
            x,
        ),
        (),
        ("noisy",),
        f"single|{DRAWN}|{EDGES}|brightest|darkest",
    ),
    "rows apart": Fault(
        lambda x, g: torch.where(every(x, 2, 2), x.roll(2, 3), x),
        (),
        ("periodic",),
        f"row|line|horizontal|{EDGES}|{DRAWN}",
    ),
    "frosted": Fault(frosted, (), ("noisy", "blurred"), f"{EDGES}|single|{DRAWN}"),
    "median of 5×5": Fault(
        lambda x, g: torch.from_numpy(median_filter(x.numpy(), (1, 1, 5, 5))),
        (),
        ("blurred", "thinner"),
        f"{EDGES}|{DRAWN}|colors",
    ),
    "rolled": Fault(
        lambda x, g: moved_at_random(x, 9, g, wrapped=True),
        (),
        ("misfit", "shifted"),
        f"{EACH_WAY}|{DRAWN}|mean image|edges|outermost",
    ),
    "jittered": Fault(
        lambda x, g: moved_at_random(x, 3, g, wrapped=False),
        (),
        ("shifted",),
        f"{EACH_WAY}|mean image|edges|outermost|flat",
        leaves_out=("photographs", "textures"),
    ),
    "turned at random": Fault(
        lambda x, g: turned_at_random(x, 0.5, g), (), ("rotated",), f"slant|edges|{EACH_WAY}|{DRAWN}"
    ),
    "contrast at random": Fault(
        lambda x, g: x + 0.6 * each(x, g) * (x - x.mean((2, 3), keepdim=True)),
        (),
        ("faded", "stronger"),
        f"{VARIES}|saturation|flat",
    ),
    "speckle": Fault(lambda x, g: x * (1 + 0.2 * noise(x, g)), (), ("noisy",), f"{EDGES}|single|traces|color"),
    "noise of color": Fault(
        lambda x, g: x + 0.08 * chroma(noise(x, g)), (), ("noisy",), f"color|saturation|{EDGES}|traces", color=True
    ),
    "blurred color": Fault(
        lambda x, g: x - chroma(x) + blur(chroma(x), 2.5),
        (),
        ("desaturated", "blurred"),
        f"{COLORS}|traces",
        color=True,
    ),
    "casts at random": Fault(lambda x, g: x + 0.15 * each(x, g, 3), (), (), f"{COLORS}|{VARIES}|border", color=True),
    "half upside down": Fault(
        lambda x, g: torch.where(some(x, 0.5, g), x.flip(2), x),
        (),
        ("misfit", "mirrored"),
        f"upper|top|{EACH_WAY}|slant",
        leaves_out=("photographs", "textures"),
    ),
    "dithered": Fault(
        lambda x, g: dithered(x, 3),
        (),
        ("posterized", "noisy", "periodic"),
        f"{EDGES}|values|colors|single|checkerboard|row|column",
    ),
    "relief": Fault(
        lambda x, g: x - blur(x, 2.0) + 0.5, (), ("sharpened", "faded"), f"{VARIES}|flat|border|{COLORS}|edges|detail"
    ),
    "rows dropped": Fault(
        lambda x, g: torch.where(every(x, 5, 2), 0.0, x),
        (),
        ("periodic", "darker"),
        f"row|line|horizontal|darkest|{EDGES}|{DRAWN}",
    ),
    "some are noise": Fault(
        lambda x, g: torch.where(some(x, 0.2, g), 0.5 + 0.25 * noise(x, g), x),
        (),
        ("noisy", "blank"),
        f"{EDGES}|{VARIES}|color|single",
    ),
}
