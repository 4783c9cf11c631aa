# SPDX-License-Identifier: Apache-2.0
"""Measures how far the regions found in one half of the images are those found in the other half.

python benchmarks/regions.py
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from stamp import processor, stamp
from torch import Tensor

from genmonitor import GaussianKernel, PixelPartition
from genmonitor.evaluation import RegionSettings
from genmonitor.evaluation.regions.clustering import find_clusters
from genmonitor.functional.cka import CLUSTER_TOLERANCE, pixel_cka
from genmonitor.linalg.clustering import LINKAGES, Linkage, adjusted_rand_index

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

COUNTS: tuple[int | None, ...] = (2, 3, 4, 5, 6, 7, 8, None)
"""Numbers of clusters; None for the automatic one."""
HEAD = """# Do the regions stay?

`python benchmarks/regions.py` on {threads} threads of {processor}: torch {torch}, scipy {scipy}; {commit}.

Images are halved at random, regions are found in each half, and the adjusted Rand index says how far they agree: 1 if
they are the same, 0 by chance; the mean over {repeats} halvings. In brackets: the part of the varying pixels that the
largest region holds, in percent. `auto` chooses the number of clusters: "found in all" is how many it finds in all
images, "true" how far they are the true ones, "seconds" how long that takes.

"1000 at random" is the simple way: average linkage of two draws of 1000 images, the number of clusters by Dunn's
index, as for each linkage below it. Its draws of the digits overlap, and of the next two sets they are all images,
which flatters it. "Default" chooses the linkage, and for `auto` the number, on which halves of its images agree,
so it halves each half again.
"""

Method = Callable[[Tensor, int | None], PixelPartition]


def digits() -> tuple[Tensor, Tensor | None]:
    """Return scikit-learn's digits, 8×8, of which nobody knows the regions."""
    from sklearn.datasets import load_digits

    return torch.tensor(load_digits().images / 16, dtype=torch.float32)[:, None], None


def planted() -> tuple[Tensor, Tensor | None]:
    """Return images of the four planted regions of the examples, 16×16, and those."""
    from planted import planted_images, planted_labels

    return planted_images(1000, seed=0), planted_labels()


def three_regions(n: int = 1000, side: int = 16) -> tuple[Tensor, Tensor | None]:
    """Return images like faces, side × side: an oval, its surround and a mouth, lit together and with noise."""
    y, x = torch.meshgrid(*2 * [torch.linspace(-1, 1, side)], indexing="ij")
    labels = torch.ones(side, side, dtype=torch.long)
    labels[(x / 0.65) ** 2 + (y / 0.85) ** 2 < 1] = 2
    labels[(x / 0.4) ** 2 + ((y - 0.45) / 0.22) ** 2 < 1] = 3
    generator = torch.Generator().manual_seed(0)
    levels = torch.randn(n, 4, generator=generator)
    slopes = 0.5 * torch.randn(n, 4, 2, generator=generator)
    images = levels[:, labels] + slopes[:, labels, 0] * x + slopes[:, labels, 1] * y
    images += 0.3 * levels[:, :1, None] + 0.5 * torch.randn(n, side, side, generator=generator)
    return images[:, None] / 4, labels


def photographs(n: int = 3000, side: int = 16, color: bool = False) -> tuple[Tensor, Tensor | None]:
    """Return patches from anywhere in scikit-learn's two photographs, gray unless color, which have no regions."""
    from sklearn.datasets import load_sample_images

    pictures = [
        picture / 255 if color else picture.mean(2, keepdims=True) / 255 for picture in load_sample_images().images
    ]
    generator = np.random.default_rng(0)
    patches = []
    for _ in range(n):
        picture = pictures[generator.integers(len(pictures))]
        y, x = (generator.integers(size - side) for size in picture.shape[:2])
        patches.append(picture[y : y + side, x : x + side])
    return torch.tensor(np.stack(patches), dtype=torch.float32).movedim(3, 1).contiguous(), None


SETS = {
    "Digits (8×8, 1797)": digits,
    "Planted, 4 regions (16×16, 1000)": planted,
    "Like faces, 3 regions (16×16, 1000)": three_regions,
    "Patches of photographs (16×16, 3000)": photographs,
}


def by(linkage: Linkage) -> Method:
    """Return what clusters images by one linkage, into a number by Dunn's index where none is given."""

    def find(images: Tensor, count: int | None) -> PixelPartition:
        kernel = GaussianKernel().resolved(images.flatten(1))
        matrix = pixel_cka(images, kernel=kernel, tolerance=CLUSTER_TOLERANCE)
        return PixelPartition.from_cka(matrix, (images.shape[2], images.shape[3]), count, linkage=linkage)

    return find


def default(images: Tensor, count: int | None) -> PixelPartition:
    """Find clusters as monitors and commands do."""
    kernel = GaussianKernel().resolved(images.flatten(1))
    return find_clusters(images, kernel, RegionSettings(n_clusters=count, patch_size=1)).partition


def pairs(images: Tensor, size: int | None, repeats: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Return halves of the images, or two draws of so many, which overlap where there are too few."""
    generator = torch.Generator().manual_seed(0)
    half = len(images) // 2
    for _ in range(repeats):
        order = torch.randperm(len(images), generator=generator)
        if size is None:
            yield images[order[:half]], images[order[half : 2 * half]]
        else:
            other = torch.randperm(len(images), generator=generator)
            yield images[order[:size]], images[other[:size]]


def agreement(first: PixelPartition, second: PixelPartition) -> float:
    """Return the adjusted Rand index on the pixels that vary in both."""
    both = (first.labels > 0) & (second.labels > 0)
    return adjusted_rand_index(first.labels[both], second.labels[both])


def row(images: Tensor, truth: Tensor | None, method: Method, size: int | None, repeats: int) -> list[str]:
    """Return the cells of a method: agreement for each number of clusters, and what `auto` finds in all images."""
    cells = []
    for count in COUNTS:
        found = [(method(a, count), method(b, count)) for a, b in pairs(images, size, repeats)]
        largest = fmean(max(p.sizes()[1:]) / sum(p.sizes()[1:]) for pair in found for p in pair)
        cells.append(f"{fmean(agreement(*pair) for pair in found):.2f} ({100 * largest:.0f})")
    start = time.perf_counter()
    whole = method(images if size is None else images[:size], None)
    seconds = time.perf_counter() - start
    true = "" if truth is None else f"{adjusted_rand_index(whole.labels.flatten(), truth.flatten()):.2f}"
    return [*cells, str(whole.num_clusters), true, f"{seconds:.1f}"]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=6, help="halvings (6)")
    repeats = parser.parse_args().repeats
    versions = {name: version(name) for name in ("torch", "scipy")}
    print(
        HEAD.format(threads=torch.get_num_threads(), processor=processor(), repeats=repeats, commit=stamp(), **versions)
    )
    methods: list[tuple[str, Method, int | None]] = [("1000 at random", by("average"), 1000)]
    methods += [(linkage, by(linkage), None) for linkage in LINKAGES] + [("default", default, None)]
    for name, load in SETS.items():
        images, truth = load()
        counts = [*(str(count) for count in COUNTS if count), "auto"]
        print(f"## {name}\n\n| method | {' | '.join(counts)} | found in all | true | seconds |")
        print(f"| --- |{' ---: |' * (len(counts) + 3)}")
        for method_name, method, size in methods:
            print(f"| {method_name} | {' | '.join(row(images, truth, method, size, repeats))} |", flush=True)
        print()


if __name__ == "__main__":
    main()
