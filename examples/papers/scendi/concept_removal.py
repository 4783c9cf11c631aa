# SPDX-License-Identifier: Apache-2.0
"""Take a concept off an image's embedding: what its neighbors and a classifier then still see, and what no longer.

python examples/papers/scendi/concept_removal.py    # seconds; a table, and a picture of the nearest images

After the corrected embedding x - Γ* t of Ospanov, Jalali and Farnia 2025, beside plain subtraction x - t. Both in the
space of `tiny_clip`; t is the prompt "a ring" or "a red thing" of the image's shape or color.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from nearest import GALLERY, NEIGHBORS, draw_nearest, nearest, share_alike
from tiny_clip import Scenes, TinyCLIP, draw_scenes, train_tiny_clip
from torch import Tensor

from genmonitor import ScendiScore


def prompts_of(scenes: Scenes, concept: str) -> list[str]:
    """Return prompts that name the shape alone, or the color alone."""
    return scenes.prompts(name_shape=concept == "shape", name_color=concept == "color")


def without(space: TinyCLIP, seen: Scenes, scenes: Scenes, concept: str, map_prompts: bool = True) -> Tensor:
    """Take the shape, or the color, off the embeddings of scenes.

    Args:
        space: that they are embedded in.
        seen: scenes that Γ* is fitted to.
        scenes: those to correct, which may be others.
        concept: "shape" or "color".
        map_prompts: False subtracts the embedded prompt as it is, Γ = identity.

    Returns:
        [n, size].
    """
    x, t = space.images(scenes.images), space.texts(prompts_of(scenes, concept))
    if not map_prompts:
        return x - t
    metric = ScendiScore()
    metric.update(space.images(seen.images), space.texts(prompts_of(seen, concept)))
    return metric.correct(x, t).float()


def embeddings(space: TinyCLIP, seen: Scenes, scenes: Scenes) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield each way to embed, and what it makes of the scenes seen and of those to be judged."""
    yield "x, as it is", space.images(seen.images), space.images(scenes.images)
    for concept in ("shape", "color"):
        for name, map_prompts in (("x - Γ* t", True), ("x - t", False)):
            made = [without(space, seen, judged, concept, map_prompts) for judged in (seen, scenes)]
            yield f"{name}, {concept} named", *made


def classify(train: Tensor, train_labels: list[str], test: Tensor, test_labels: list[str]) -> tuple[float, float]:
    """Return how often the nearest mean of a class, and a linear classifier by least squares, are right."""
    classes = sorted(set(train_labels))
    target = torch.tensor([[float(label == one) for one in classes] for label in train_labels])
    truth = torch.tensor([classes.index(label) for label in test_labels])
    means = target.T @ train / target.sum(0)[:, None]
    weights = torch.linalg.lstsq(with_one(train), target, driver="gelsd").solution
    guesses = torch.cdist(test, means).argmin(1), (with_one(test) @ weights).argmax(1)
    by_mean, linear = (float((guess == truth).float().mean()) for guess in guesses)
    return by_mean, linear


def with_one(x: Tensor) -> Tensor:
    """Return x with a column of ones, for an intercept."""
    return torch.cat([x, torch.ones(len(x), 1)], 1)


def measure(space: TinyCLIP, seen: Scenes, scenes: Scenes) -> list[tuple[str, dict[str, float]]]:
    """Return for each way to embed how many neighbors share shape, or color, and how often classifiers are right."""
    rows = []
    for name, of_seen, embedded in embeddings(space, seen, scenes):
        neighbors, values = nearest(embedded), {}
        for concept in ("shape", "color"):
            labels, seen_labels = (getattr(side, f"{concept}s") for side in (scenes, seen))
            values[f"neighbors_{concept}"] = share_alike(neighbors, labels)
            by_mean, linear = classify(of_seen, seen_labels, embedded, labels)
            values |= {f"mean_{concept}": by_mean, f"linear_{concept}": linear}
        rows.append((name, values))
    return rows


def draw(path: Path, space: TinyCLIP, seen: Scenes, scenes: Scenes) -> None:
    """Draw four scenes with those nearest to them, before and after the shape or the color is taken off."""
    spaces = {
        "x, as it is": nearest(space.images(scenes.images)),
        "shape removed": nearest(without(space, seen, scenes, "shape")),
        "color removed": nearest(without(space, seen, scenes, "color")),
    }
    kinds = [f"{color} {shape}" for color, shape in zip(scenes.colors, scenes.shapes, strict=True)]
    wanted = ("blue square", "green ring", "blue cross", "red ring")
    queries = {kinds.index(kind): kind for kind in wanted if kind in kinds}
    draw_nearest(path, "What is nearest once a concept is removed", scenes.images, queries, spaces)


def main() -> None:
    """Train the space, print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="of training the space")
    parser.add_argument("-n", type=int, default=2000, help="scenes to fit Γ* to, and as many to judge it on")
    parser.add_argument("--out", type=Path, default=Path("runs/scendi"), help="where the picture is written")
    args = parser.parse_args()
    space, seen, scenes = train_tiny_clip(args.steps), draw_scenes(args.n, seed=1), draw_scenes(args.n, seed=2)
    print(f"Percent of 3 classes, chance 33: of the {NEIGHBORS} nearest of {GALLERY}; right answers of two classifiers")
    print(f"{'':<24}{'nearest':<16}{'nearest mean':<16}linear")
    print(f"{'':<24}" + "shape   color   " * 3)
    for name, values in measure(space, seen, scenes):
        cells = [values[f"{how}_{of}"] for how in ("neighbors", "mean", "linear") for of in ("shape", "color")]
        print(f"{name:<24}" + "".join(f"{100 * cell:<8.0f}" for cell in cells))
    draw(args.out / "nearest.png", space, seen, scenes)
    print(f"\nThe nearest images, before and after: {args.out / 'nearest.png'}")


if __name__ == "__main__":
    main()
