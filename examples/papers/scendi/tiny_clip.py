# SPDX-License-Identifier: Apache-2.0
"""A tiny CLIP: one space for drawn scenes and their captions, learned from scratch in seconds.

python examples/papers/scendi/tiny_clip.py          # trains it and says how well it names what is drawn

As in CLIP's data, a caption names some of what there is to see (color, shape, size, side), and images have writing on
them: some scenes bear the name of their shape or color, and some images are nothing but a name, so that it reads.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn
from torch.nn.functional import log_softmax, normalize

sys.path.append(str(Path(__file__).resolve().parents[2]))
from drawn_scenes import COLORS, SHAPES, SIDE, Scenes, draw_scenes

WORDS = (*SHAPES, *COLORS, "small", "large", "left", "right")


class TinyCLIP(nn.Module):
    """Two encoders into one space.

    Args:
        size: of the space.
    """

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.of_images = nn.Sequential(
            *(nn.Conv2d(3, 24, 5, stride=2, padding=2), nn.ReLU()),
            *(nn.Conv2d(24, 48, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(48, 48, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(48 * (SIDE // 8) ** 2, 128), nn.ReLU(), nn.Linear(128, size)),
        )
        self.of_words = nn.Linear(len(WORDS), size)
        self.scale = 8.0

    @torch.no_grad()
    def images(self, images: Tensor) -> Tensor:
        """Embed images [n, 3, 32, 32] as directions [n, size]."""
        return normalize(self.of_images(images))

    @torch.no_grad()
    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts as directions [n, size]; the order of their words does not matter."""
        return normalize(self.of_words(count_words(texts)))

    def loss(self, images: Tensor, words: Tensor) -> Tensor:
        """Contrast images with the words of all captions; an image matches each caption that reads as its own."""
        logits = self.scale * normalize(self.of_images(images)) @ normalize(self.of_words(words)).T
        matches = (torch.cdist(words, words, p=1) < 0.5).float()
        matches /= matches.sum(1, keepdim=True)
        return -sum((matches * log_softmax(x, 1)).sum(1).mean() for x in (logits, logits.T)) / 2


def train_tiny_clip(steps: int = 400, batch: int = 128, n: int = 6000, seed: int = 0) -> TinyCLIP:
    """Train on scenes of its own; torch's global random generator is left alone.

    Of the images a fifth bears the name of its shape or color, and a fifth is a sign: such a name on gray.

    Args:
        steps: of Adam.
        batch: captioned images per step.
        n: images to draw them from.
        seed: of weights and data.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model, scenes = TinyCLIP(), draw_scenes(n, seed + 1000)
        images, words, written = scenes.images.clone(), count_words(captions(scenes)), torch.zeros(n, len(WORDS))
        on = torch.arange(n) % 5  # 0: a name is on the scene, 1: nothing else is
        names = [(*SHAPES, *COLORS)[i] for i in torch.randint(6, (n,)).tolist()]
        images[on == 1] = 0
        images[on < 2] = write(images[on < 2], [names[i] for i in range(n) if on[i] < 2], seed)
        written[on < 2] = count_words(names)[on < 2]
        words[on == 1] = 0
        optimizer = torch.optim.Adam(model.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
        for _ in range(steps):
            rows = torch.randint(n, (batch,))
            named = (torch.rand(batch, 4) < 0.6).repeat_interleave(torch.tensor([3, 3, 2, 2]), 1)
            loss = model.loss(images[rows], torch.maximum(words[rows] * named, written[rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.requires_grad_(False)


def captions(scenes: Scenes) -> list[str]:
    """Return captions that name all there is to see: "a small red ring left"."""
    return [
        f"a {'small' if radius < 0.325 else 'large'} {color} {shape} {'left' if x < 0 else 'right'}"
        for radius, color, shape, x in zip(
            scenes.radii, scenes.colors, scenes.shapes, scenes.centers[:, 0], strict=True
        )
    ]


def count_words(texts: Sequence[str]) -> Tensor:
    """Count the `WORDS` in each text, [n, words]; others are not read."""
    return torch.tensor([[float(text.split().count(word)) for word in WORDS] for text in texts])


def write(images: Tensor, words: Sequence[str], seed: int) -> Tensor:
    """Write a word onto each image [n, 3, 32, 32], in white, at the top or at the bottom."""
    images, generator = images.clone(), torch.Generator().manual_seed(seed)
    for image, word, place in zip(images, words, torch.rand(len(words), 2, generator=generator), strict=True):
        letters = _letters(word)
        height, width = letters.shape
        top = 1 if place[0] < 0.5 else SIDE - height - 1
        left = int(place[1] * (SIDE - width + 1))
        part = image[:, top : top + height, left : left + width]
        part += letters * (1 - part)
    return images


@functools.cache
def _letters(word: str) -> Tensor:
    """Return how much of each pixel the letters of a word cover, [height, width]."""
    font = ImageFont.load_default(size=9)
    left, top, right, bottom = font.getbbox(word)
    canvas = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(canvas).text((-left, -top), word, font=font, fill=255)
    return torch.from_numpy(np.asarray(canvas) / 255).float()


def accuracy(embedded: Tensor, model: TinyCLIP, names: Sequence[str], truth: Sequence[str]) -> float:
    """Return how often the nearest of the prompts "a NAME" is the true one, in [0, 1].

    Args:
        embedded: [n, size]; need not have norm 1.
        model: of the space.
        names: to choose from.
        truth: n of them.
    """
    nearest = (embedded @ model.texts([f"a {name}" for name in names]).T).argmax(1).tolist()
    return sum(names[found] == true for found, true in zip(nearest, truth, strict=True)) / len(truth)


def main() -> None:
    """Train, and say how often the nearest prompt is right on new scenes."""
    model, scenes = train_tiny_clip(), draw_scenes(2000, seed=1)
    embedded = model.images(scenes.images)
    for attribute, names, truth in (("shape", SHAPES, scenes.shapes), ("color", tuple(COLORS), scenes.colors)):
        print(f"{attribute} named rightly: {100 * accuracy(embedded, model, names, truth):.1f} %")


if __name__ == "__main__":
    main()
