# SPDX-License-Identifier: Apache-2.0
"""What Scendi measures, on drawn scenes: variety that the prompts ask for does not count, variety beside it does.

python examples/scendi_experiment.py                # a few seconds; two tables, and a picture of the modes left over

After the controlled experiments of Ospanov, Jalali and Farnia 2025. Drawings are measured (`describe`), words counted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from drawn_scenes import COLORS, SHAPES, VOCABULARY, Scenes, bag_of_words, describe, draw_scenes
from torch import Tensor

from genmonitor import ScendiScore
from genmonitor.functional import vendi_score
from genmonitor.linalg.feature_maps import unit_sphere
from genmonitor.plotting.diversity import mode_samples


def measure(scenes: Scenes, name_shape: bool, name_color: bool) -> dict[str, float]:
    """Measure scenes whose prompts name shape, color, both or neither.

    Returns:
        `vendi`; `scendi`, `scendi_prompt`, `prompt_share`; and the Vendi score of what is left of the images when the
        prompts are taken off, as they are by Scendi (`left_by_gamma`) or by plain subtraction (`left_by_identity`).
    """
    outputs = describe(scenes.images)
    prompts = bag_of_words(scenes.prompts(name_shape, name_color))
    metric = ScendiScore()
    metric.update(outputs, prompts)
    values = metric.compute()
    values["vendi"] = vendi_score(outputs)
    values["left_by_gamma"] = vendi_score(metric.correct(outputs, prompts))
    values["left_by_identity"] = vendi_score(unit_sphere(outputs) - into_output_space(unit_sphere(prompts)))
    return {name: float(value) for name, value in values.items()}


def into_output_space(prompts: Tensor) -> Tensor:
    """Turn words into the space of the images, each along a direction of its own: two encoders trained apart.

    Only in a space that both share can prompts be subtracted at all (Γ = identity).
    """
    generator = torch.Generator().manual_seed(0)
    size = describe(draw_scenes(1, seed=0).images).shape[1]
    return prompts @ torch.linalg.qr(torch.randn(size, len(VOCABULARY), generator=generator)).Q.T


def add_classes(attribute: str, named: bool, n: int = 2000, seed: int = 0) -> list[dict[str, float]]:
    """Measure scenes with 1, 2 and 3 shapes, or colors; the prompts name that attribute or not, the other never."""
    rows = []
    for count in (1, 2, 3):
        shapes = SHAPES[:count] if attribute == "shape" else SHAPES
        colors = tuple(COLORS)[:count] if attribute == "color" else tuple(COLORS)
        scenes = draw_scenes(n, seed, shapes, colors)
        rows.append(measure(scenes, named and attribute == "shape", named and attribute == "color"))
    return rows


def say_more(n: int = 2000, seed: int = 0) -> list[dict[str, float]]:
    """Measure the same scenes with prompts that name nothing, the shape, and shape and color."""
    scenes = draw_scenes(n, seed)
    return [measure(scenes, *named) for named in ((False, False), (True, False), (True, True))]


def draw_modes(path: Path, n: int = 2000, seed: int = 0) -> None:
    """Draw the scenes at both ends of the modes that prompts with shape and color leave open: place and size."""
    scenes = draw_scenes(n, seed)
    texts = scenes.prompts()
    outputs, prompts = describe(scenes.images), bag_of_words(texts)
    metric = ScendiScore()
    metric.update(outputs, prompts)
    modes = metric.modes(4)
    order = metric.mode_scores(outputs, prompts, modes).argsort(0, descending=True)
    ends = torch.cat([order[:5], order[-5:]]).T
    left = float(1 - metric.compute()["prompt_share"])
    shares = [float(value) / left for value in modes.eigenvalues]
    path.parent.mkdir(parents=True, exist_ok=True)
    mode_samples(shares, scenes.images[ends], [[texts[i] for i in row] for row in ends], (-1, 1)).savefig(path)


def main() -> None:
    """Print the tables and draw the modes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/scendi"), help="where the picture is written")
    out = parser.parse_args().out / "modes.png"
    for attribute in ("shape", "color"):
        print(f"\n1, 2, 3 {attribute}s: Vendi rises; Scendi rises only where prompts do not name the {attribute}")
        print(f"{attribute}s   Vendi   Scendi, named   not named   left, named: Vendi(x - Γ*t)   Vendi(x - t)")
        rows = zip(add_classes(attribute, named=True), add_classes(attribute, named=False), strict=True)
        for count, (named, unnamed) in enumerate(rows, start=1):
            print(
                f"{count:<9}{named['vendi']:<8.2f}{named['scendi']:<16.2f}{unnamed['scendi']:<12.2f}"
                f"{named['left_by_gamma']:<29.2f}{named['left_by_identity']:.2f}"
            )
    print("\nSame scenes, prompts that say more: Vendi stays; Scendi counts what they leave open")
    print("prompts            Vendi   Scendi   explained by the prompts")
    for prompt, row in zip(('"a thing"', '"a square"', '"a red square"'), say_more(), strict=True):
        print(f"{prompt:<19}{row['vendi']:<8.2f}{row['scendi']:<9.2f}{100 * row['prompt_share']:.0f} %")
    draw_modes(out)
    print(f"\nWhat prompts with shape and color leave open: {out}")


if __name__ == "__main__":
    main()
