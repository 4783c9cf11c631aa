# SPDX-License-Identifier: Apache-2.0
"""The same scenes with prompts that say more: Scendi counts what they leave open, and its modes show what that is.

python examples/papers/scendi/open_modes.py         # seconds; a table, and a picture of the modes left over

After the controlled experiments of Ospanov, Jalali and Farnia 2025, in the space of `tiny_clip`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tiny_clip import Scenes, TinyCLIP, draw_scenes, train_tiny_clip

from genmonitor import ScendiScore
from genmonitor.functional import vendi_score
from genmonitor.plotting.diversity import mode_samples

NAMED = {'"a thing"': (False, False), '"a square"': (True, False), '"a red square"': (True, True)}
"""Whether a prompt names the shape, and the color."""


def fitted(space: TinyCLIP, scenes: Scenes, name_shape: bool, name_color: bool) -> ScendiScore:
    """Return Scendi of scenes whose prompts name shape, color, both or neither."""
    metric = ScendiScore()
    metric.update(space.images(scenes.images), space.texts(scenes.prompts(name_shape, name_color)))
    return metric


def say_more(space: TinyCLIP, scenes: Scenes) -> list[dict[str, float]]:
    """Measure the same scenes with prompts that name nothing, the shape, and shape and color."""
    vendi = float(vendi_score(space.images(scenes.images)))
    scores = [fitted(space, scenes, *named).compute() for named in NAMED.values()]
    return [{name: float(value) for name, value in score.items()} | {"vendi": vendi} for score in scores]


def draw_modes(path: Path, space: TinyCLIP, scenes: Scenes) -> None:
    """Draw the scenes at both ends of the modes that prompts with shape and color leave open: side and size."""
    texts, metric = scenes.prompts(), fitted(space, scenes, True, True)
    modes = metric.modes(3)
    scores = metric.mode_scores(space.images(scenes.images), space.texts(texts), modes)
    order = scores.argsort(0, descending=True)
    ends = torch.cat([order[:5], order[-5:]]).T
    left = float(1 - metric.compute()["prompt_share"])
    shares = [float(value) / left for value in modes.eigenvalues]
    path.parent.mkdir(parents=True, exist_ok=True)
    mode_samples(shares, scenes.images[ends], [[texts[i] for i in row] for row in ends], (-1, 1)).savefig(path)


def main() -> None:
    """Train the space, print the table and draw the modes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="of training the space")
    parser.add_argument("-n", type=int, default=2000, help="scenes")
    parser.add_argument("--out", type=Path, default=Path("runs/scendi"), help="where the picture is written")
    args = parser.parse_args()
    space, scenes = train_tiny_clip(args.steps), draw_scenes(args.n, seed=0)
    print("prompts            Vendi   Scendi   explained by the prompts")
    for prompt, row in zip(NAMED, say_more(space, scenes), strict=True):
        print(f"{prompt:<19}{row['vendi']:<8.2f}{row['scendi']:<9.2f}{100 * row['prompt_share']:.0f} %")
    draw_modes(args.out / "modes.png", space, scenes)
    print(f"\nWhat prompts with shape and color leave open: {args.out / 'modes.png'}")


if __name__ == "__main__":
    main()
