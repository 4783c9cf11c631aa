# SPDX-License-Identifier: Apache-2.0
"""A word written onto an image misleads a model that reads; taking the word off its embedding brings the image back.

python examples/papers/scendi/typographic_attack.py # seconds; a table, and a picture of the nearest images

After the typographic attacks in Ospanov, Jalali and Farnia 2025. Scenes bear the name of a shape at random, which is
the right one in a third of them. Γ* is fitted to other such scenes, with what is written on each as its prompt.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from nearest import GALLERY, draw_nearest, nearest, share_alike
from tiny_clip import SHAPES, TinyCLIP, accuracy, draw_scenes, train_tiny_clip, write
from torch import Tensor

from genmonitor import ScendiScore


def attack(n: int, seed: int) -> tuple[Tensor, list[str], list[str]]:
    """Draw scenes with the name of a shape on each: images, their shapes, and the words."""
    scenes = draw_scenes(n, seed)
    drawn = torch.randint(len(SHAPES), (n,), generator=torch.Generator().manual_seed(seed)).tolist()
    words = [SHAPES[i] for i in drawn]
    return write(scenes.images, words, seed), scenes.shapes, words


def embeddings(space: TinyCLIP, images: Tensor, words: list[str], n: int, seed: int) -> dict[str, Tensor]:
    """Return the images' embeddings: as they are, and with the word taken off by Γ* and by plain subtraction.

    Args:
        space: that they are embedded in.
        images: [m, 3, 32, 32].
        words: what is written on each.
        n: scenes that Γ* is fitted to.
        seed: of these.
    """
    seen, _, seen_words = attack(n, seed)
    metric = ScendiScore()
    metric.update(space.images(seen), space.texts([f"a {word}" for word in seen_words]))
    x, t = space.images(images), space.texts([f"a {word}" for word in words])
    return {"attacked: x": x, "word removed: x - Γ* t": metric.correct(x, t).float(), "subtracted: x - t": x - t}


def measure(space: TinyCLIP, embedded: Tensor, shapes: list[str], words: list[str]) -> dict[str, float]:
    """Return how often the nearest of "a square", "a cross" and "a ring" is right, and what the nearest images share.

    Returns:
        `wrong_word`, `right_word`: right answers where the word is another shape's, and where it is the right one;
        `same_shape`, `same_word`: of the nearest images.
    """
    wrong = torch.tensor([shape != word for shape, word in zip(shapes, words, strict=True)])
    neighbors, values = nearest(embedded), {}
    for name, rows in (("wrong_word", wrong), ("right_word", ~wrong)):
        values[name] = accuracy(embedded[rows], space, SHAPES, [shapes[i] for i in rows.nonzero().flatten()])
    return values | {"same_shape": share_alike(neighbors, shapes), "same_word": share_alike(neighbors, words)}


def main() -> None:
    """Train the space, print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="of training the space")
    parser.add_argument("-n", type=int, default=2000, help="scenes to fit Γ* to, and as many to judge it on")
    parser.add_argument("--out", type=Path, default=Path("runs/scendi"), help="where the picture is written")
    args = parser.parse_args()
    space, clean = train_tiny_clip(args.steps), draw_scenes(args.n, seed=2)
    images, shapes, words = attack(args.n, seed=2)
    found = embeddings(space, images, words, args.n, seed=1)
    print("Percent of 3 shapes, chance 33. Named rightly by the nearest prompt; what the nearest share")
    print(f"{'':<26}wrong word   right word   shape   word")
    named = accuracy(space.images(clean.images), space, SHAPES, clean.shapes)
    alike = share_alike(nearest(space.images(clean.images)), clean.shapes)
    print(f"{'no word':<26}{100 * named:<26.0f}{100 * alike:.0f}")
    for name, embedded in found.items():
        values = [100 * value for value in measure(space, embedded, shapes, words).values()]
        print("{:<26}{:<13.0f}{:<13.0f}{:<8.0f}{:.0f}".format(name, *values))
    misled = [i for i in range(min(args.n, GALLERY)) if shapes[i] != words[i]]
    queries = {i: shape for shape in SHAPES for i in [i for i in misled if shapes[i] == shape][:2]}
    spaces = {name: nearest(embedded) for name, embedded in list(found.items())[:2]}
    draw_nearest(args.out / "attack.png", "A written word, and what is nearest without it", images, queries, spaces)
    print(f"\nThe nearest images, before and after: {args.out / 'attack.png'}")


if __name__ == "__main__":
    main()
