# SPDX-License-Identifier: Apache-2.0
"""Draw the pictures of the gallery of kinds, and keep what the diagnosis says of each.

python docs/kinds.py [FOLDER] [KIND ...]     # minutes; docs/pictures/kinds if no folder is given, all kinds if none is

Each fault is planted in drawn images that the benchmark of diagnoses uses, 400 against 400 others. What the package is
told are images and the area; the faults are written apart from its own.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from diagnosis_faults import KINDS, Fault, planted
from diagnosis_images import generator_of, image_set
from diagnosis_unseen_faults import compressed, grayer, hue, larger_pixels, turned

from genmonitor import diagnose
from genmonitor.functional import discrepancy_map
from genmonitor.plotting.diagnosis import map_pixels
from genmonitor.plotting.style import INK, add_axes, new_figure, paste, to_array, to_tiles

N, SHOWN, SIDE, GAP = 400, 4, 200, 22


@dataclass(frozen=True)
class Planted:
    """What is planted to show a kind.

    Attributes:
        fault: its name in the benchmark.
        images: the set that it is planted in.
        strength: one that is seen at a glance.
        local: whether it is planted in the lower right quarter, and not everywhere.
    """

    fault: str
    images: str = "faces"
    strength: float = 0.0
    local: bool = True


FAULTS = KINDS | {
    "clipped above": Fault(lambda x, s, g: x.clamp_max(1 - s), (0.1, 0.2, 0.3), ("clipped",)),
    "mirrored": Fault(lambda x, s, g: x.flip(3), (1.0,), ("mirrored",)),
    "rotated": Fault(lambda x, s, g: turned(x, s, 1.0), (0.3,), ("rotated",)),
    "zoomed": Fault(lambda x, s, g: turned(x, 0.0, s), (1.3,), ("zoomed",)),
    "gamma": Fault(lambda x, s, g: x.clamp(0, 1) ** s, (1.8,), ("gamma",)),
    "less saturated": Fault(lambda x, s, g: grayer(x, s), (0.7,), ("desaturated",)),
    "hue": Fault(lambda x, s, g: hue(x, s), (0.2,), ("hue",)),
    "channels swapped": Fault(lambda x, s, g: x.flip(1), (1.0,), ("channels_swapped",)),
    "compressed": Fault(lambda x, s, g: compressed(x, int(s)), (12,), ("compressed",)),
    "pixelated": Fault(lambda x, s, g: larger_pixels(x), (1.0,), ("pixelated",)),
}
PLANTED = {
    "brighter": Planted("brighter", strength=0.12),
    "darker": Planted("darker", strength=0.12),
    "color": Planted("red", strength=0.12),
    "faded": Planted("faded", strength=0.5),
    "stronger": Planted("too strong", strength=0.5),
    "blurred": Planted("blurred", strength=1.2, local=False),
    "sharpened": Planted("oversharp", strength=0.8, local=False),
    "noisy": Planted("noisy", strength=0.1),
    "periodic": Planted("periodic", strength=0.1),
    "shifted": Planted("shifted", strength=3, local=False),
    "blank": Planted("missing in some", strength=0.2),
    "clipped": Planted("clipped above", strength=0.3, local=False),
    "posterized": Planted("posterized", strength=4, local=False),
    "thicker": Planted("thicker", "digits", 1.0, local=False),
    "thinner": Planted("thinner", "digits", 1.0, local=False),
    "less_varied": Planted("less varied", strength=0.4, local=False),
    "modes": Planted("", "digits", 5, local=False),  # digits from 0 to 4 alone
    "misfit": Planted("parts that do not fit", strength=1.0),
    "copies": Planted("few images", strength=30, local=False),
    "mirrored": Planted("mirrored", "digits", 1.0, local=False),
    "rotated": Planted("rotated", "digits", 0.3, local=False),
    "zoomed": Planted("zoomed", "digits", 1.3, local=False),
    "gamma": Planted("gamma", strength=1.8, local=False),
    "desaturated": Planted("less saturated", strength=0.7, local=False),
    "oversaturated": Planted("less saturated", strength=-0.7, local=False),
    "hue": Planted("hue", strength=0.2, local=False),
    "channels_swapped": Planted("channels swapped", strength=1.0, local=False),
    "compressed": Planted("compressed", strength=12, local=False),
    "pixelated": Planted("pixelated", strength=1.0, local=False),
}


def spoiled(kind: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return images that are as they are, images with the fault, the real ones to compare with, and where it is."""
    shown, generator = PLANTED[kind], generator_of("gallery", kind)
    images = image_set(shown.images)
    inside = torch.ones(images.images.shape[2:], dtype=torch.bool)
    if kind == "modes":
        order = torch.randperm(len(images.images), generator=generator)
        real, others = images.images[order[:N]], order[N:]
        return real, images.images[others[images.labels[others] < shown.strength][:N]], real, inside
    plain, real = images.draw(N, generator)
    if shown.local:
        inside[: len(inside) // 2] = False
        inside[:, : len(inside) // 2] = False
    return plain, planted(FAULTS[shown.fault], plain, shown.strength, inside, 0), real, inside


def draw(kind: str, folder: Path) -> str:
    """Draw a kind, and return what the diagnosis says of it."""
    plain, fake, real, inside = spoiled(kind)
    found = diagnose(fake=fake, real=real, area=inside)
    first = next((x for x in found.findings if x.kinds and x.kinds[0].name == kind), found.findings[0])
    if kind == "modes":
        sides = {"real, too rare": real[list(found.too_rare[:SHOWN])], "generated": fake[:SHOWN]}
    elif kind == "copies":
        sides = {"real": real[:SHOWN], "generated": fake[list(first.samples[:SHOWN])]}
    else:
        changed = (fake - plain).flatten(1).abs().mean(1).argsort(descending=True)[:SHOWN]
        sides = {"real": plain[changed], "with the fault": fake[changed]}
    figure = new_figure(3 * SIDE + 2 * GAP + 2, SIDE + 28, "")
    for column, (name, images) in enumerate(sides.items()):
        ax = add_axes(figure, column * (SIDE + GAP), 1, SIDE, SIDE)
        ax.imshow(paste(to_tiles(to_array(images), (0, 1)), 2)[0], interpolation="nearest")
        ax.set_axis_off()
        ax.set_title(name, fontsize=11, color=INK, pad=6)
    drawn = discrepancy_map(fake, real)
    ax = add_axes(figure, 2 * (SIDE + GAP), 1, SIDE, SIDE)
    pixels = map_pixels(real.mean(0), to_array(drawn["map"]), to_array(drawn["p_map"]))
    ax.imshow(pixels, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.set_title("where they differ", fontsize=11, color=INK, pad=6)
    figure.savefig(folder / f"{kind}.png", metadata={"Software": None})
    return re.split(r"(?<=\)\.) ", str(first))[0]  # without the kinds of images that are missing


def main() -> None:
    """Draw all kinds, or those that are named."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures" / "kinds"
    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "said.json"
    findings = json.loads(said.read_text(encoding="utf-8")) if said.exists() else {}
    for kind in sys.argv[2:] or PLANTED:
        findings[kind] = draw(kind, folder)
        print(f"{kind}: {findings[kind]}", flush=True)
    said.write_text(json.dumps(findings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
