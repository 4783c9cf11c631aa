# SPDX-License-Identifier: Apache-2.0
"""Do prompts that say more leave less variety? W1KP of drawn scenes, whose prompts name color and shape or do not.

python examples/papers/w1kp/prompt_specificity.py       # a few seconds; a table, two correlations and a picture

The paper asks it of 56 features of real prompts, such as their length and concreteness, with images of three models.
Here what a prompt leaves open is known, since scenes are drawn at random in all that it does not name.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import torch
from scipy.stats import spearmanr

sys.path.append(str(Path(__file__).resolve().parents[2]))
from drawn_scenes import COLORS, SHAPES, describe, draw_scenes
from reusability import Reusability, reusability_of
from reusability import draw as draw_curves

from genmonitor import W1KPScore
from genmonitor.functional import W1KPCalibration, calibrate
from genmonitor.functional.w1kp import PromptVariability

ANY = "thing"


def prompts() -> list[tuple[str | None, str]]:
    """Return color and shape of each prompt, from "a thing" to "a blue ring": None and `ANY` where it names neither."""
    return list(product((None, *COLORS), (ANY, *SHAPES)))


def text(color: str | None, shape: str) -> str:
    """Return a prompt as people write it."""
    return f"a {color} {shape}" if color else f"a {shape}"


def named(color: str | None, shape: str) -> int:
    """Count what a prompt names."""
    return (color is not None) + (shape != ANY)


def draw(color: str | None, shape: str, n: int, seed: int) -> torch.Tensor:
    """Draw n scenes of a prompt and describe them [n, 93]."""
    shapes = SHAPES if shape == ANY else (shape,)
    return describe(draw_scenes(n, seed, shapes, tuple(COLORS) if color is None else (color,)).images)


def make_calibration(n: int) -> W1KPCalibration:
    """Calibrate on n scenes of each prompt, drawn apart from those that are measured."""
    index = torch.arange(len(prompts())).repeat_interleave(n)
    return calibrate(torch.cat([draw(*prompt, n, seed=1000 + i) for i, prompt in enumerate(prompts())]), index)


def measure(n: int) -> tuple[list[PromptVariability], dict[str, Reusability]]:
    """Return W1KP of each prompt, in the order of `prompts`, and the reusability of those that name one or both."""
    calibration = make_calibration(n)
    metric = W1KPScore(calibration)
    by_count: dict[int, list[torch.Tensor]] = {0: [], 1: [], 2: []}
    for i, prompt in enumerate(prompts()):
        features = draw(*prompt, n, seed=i)
        metric.update(features, torch.full((n,), i))
        by_count[named(*prompt)].append(features)
    rows = sorted(metric.per_prompt(), key=lambda row: row.prompt)
    names = {"color or shape named": 1, "both named": 2}
    return rows, {name: reusability_of(by_count[count], calibration) for name, count in names.items()}


def print_table(rows: list[PromptVariability]) -> None:
    """Print the prompts, the least varied first."""
    print("prompt           named   W1KP  level    good for")
    for row in sorted(rows, key=lambda row: -row.w1kp):
        prompt = prompts()[int(row.prompt)]
        good_for = f"{row.reusability} of {row.outputs}"
        print(f"{text(*prompt):<15}  {named(*prompt):>5}  {row.w1kp:>5.2f}  {row.level:<7}  {good_for:>8}")


def main() -> None:
    """Measure, print, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50, help="of each prompt")
    parser.add_argument("--out", type=Path, default=Path("runs/w1kp"), help="where the picture goes")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows, curves = measure(args.images)
    print_table(rows)
    scores = [row.w1kp for row in rows]
    features = {
        "properties named": [named(*prompt) for prompt in prompts()],
        "words": [len(text(*prompt).split()) for prompt in prompts()],
    }
    print()
    for name, values in features.items():
        rho, p = spearmanr(values, scores)
        print(f"W1KP rises with {name:<17} Spearman's rho {rho:.2f}, p = {p:.2g}, {len(rows)} prompts")
    for name, curve in curves.items():
        low, high = curve.interval
        print(f"{name:<21} a prompt is good for {curve.images} images ({low} to {high})")
    draw_curves(curves, args.out / "specificity-reusability.png")
    print(f"picture: {args.out / 'specificity-reusability.png'}")


if __name__ == "__main__":
    main()
