# SPDX-License-Identifier: Apache-2.0
"""Scendi the other way round, captions given images: variety of captions that the images ask for does not count.

python examples/papers/scendi/captions.py           # seconds; a table

After the image captioning experiment of Ospanov, Jalali and Farnia 2025. Captions are the outputs and images the
prompts: `ScendiScore` takes them in this order, and `correct` takes off captions what their images explain.
"""

from __future__ import annotations

import argparse

import torch
from tiny_clip import SHAPES, Scenes, TinyCLIP, draw_scenes, train_tiny_clip

from genmonitor import ScendiScore
from genmonitor.functional import vendi_score


def faithful(scenes: Scenes, seed: int) -> list[str]:
    """Name the shape that is drawn."""
    return scenes.prompts(name_color=False)


def careless(scenes: Scenes, seed: int) -> list[str]:
    """Name a shape at random, as often each as it is drawn."""
    order = torch.randperm(len(scenes.shapes), generator=torch.Generator().manual_seed(seed))
    return [f"a {scenes.shapes[i]}" for i in order]


CAPTIONERS = {"faithful": faithful, "careless": careless}


def measure(space: TinyCLIP, scenes: Scenes, captions: list[str]) -> dict[str, float]:
    """Return Vendi of the captions; Scendi of captions given images, and which share of them the images explain."""
    x, t = space.texts(captions), space.images(scenes.images)
    metric = ScendiScore()
    metric.update(x, t)
    values = metric.compute()
    return {
        "vendi": float(vendi_score(x)),
        "scendi": float(values["scendi"]),
        "explained": float(values["prompt_share"]),
    }


def add_shapes(space: TinyCLIP, captioner: str, n: int = 2000, seed: int = 0) -> list[dict[str, float]]:
    """Measure the captions of scenes with 1, 2 and 3 shapes."""
    rows = []
    for count in (1, 2, 3):
        scenes = draw_scenes(n, seed, SHAPES[:count])
        rows.append(measure(space, scenes, CAPTIONERS[captioner](scenes, seed)))
    return rows


def main() -> None:
    """Train the space and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="of training the space")
    parser.add_argument("-n", type=int, default=2000, help="captioned scenes")
    args = parser.parse_args()
    space = train_tiny_clip(args.steps)
    rows = zip(*(add_shapes(space, captioner, args.n) for captioner in CAPTIONERS), strict=True)
    print("Captions that name the shape drawn (faithful), or one at random (careless), given their images")
    print("         Vendi of       Scendi given images    explained by the images")
    print("shapes   the captions   faithful   careless    faithful   careless")
    for count, (good, bad) in enumerate(rows, start=1):
        shares = [f"{100 * row['explained']:.0f} %" for row in (good, bad)]
        print(
            f"{count:<9}{good['vendi']:<15.2f}{good['scendi']:<11.2f}{bad['scendi']:<12.2f}{shares[0]:<11}{shares[1]}"
        )


if __name__ == "__main__":
    main()
