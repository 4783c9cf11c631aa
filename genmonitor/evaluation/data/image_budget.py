# SPDX-License-Identifier: Apache-2.0
"""How many images to look for regions in, and which: the same ones whatever the seed."""

from __future__ import annotations

import math

import torch

MAX_IMAGES, LEAST_IMAGES = 5000, 1000
"""The most and the fewest images to look for regions in, where there are so many."""
MAX_BYTES = 2**28
"""Of these images, in float32: 256 MiB."""
MAX_WORK = 1.5e11
"""Products of values of two sites in an image, over all images and pairs of sites: about half a minute on one core."""


def image_budget(shape: tuple[int, ...], patch_size: int = 1) -> int:
    """Return how many images [c, h, w] to look for regions in: 5000, fewer where they are large, at least 1000.

    Example:
        >>> [image_budget((channels, side, side)) for channels, side in ((1, 8), (3, 32), (3, 64), (3, 256))]
        [5000, 5000, 2980, 1000]
        >>> image_budget((3, 128, 128), patch_size=4)
        1365
    """
    affordable = min(MAX_BYTES / (4 * math.prod(shape)), MAX_WORK / cka_work(1, shape, patch_size))
    return int(min(MAX_IMAGES, max(LEAST_IMAGES, affordable)))


def cka_work(n: int, shape: tuple[int, ...], patch_size: int = 1) -> float:
    """Return the products of values of two sites in an image, over n images [c, h, w] and all pairs of sites."""
    channels, height, width = shape
    sites = (height // patch_size) * (width // patch_size)
    return float(n) * sites**2 * channels * patch_size**2


def evenly_spread(length: int, count: int) -> list[int]:
    """Choose indices below a length: all where they are no more than `count`, else one from each of as many stretches.

    Where in its stretch an index lies is random, from a generator that is always the same: a fixed distance would take
    images of one class alone where classes take turns.

    Example:
        >>> evenly_spread(4, 10), evenly_spread(10, 3) == evenly_spread(10, 3)
        ([0, 1, 2, 3], True)
    """
    if length <= count:
        return list(range(length))
    bounds = torch.arange(count + 1) * length // count
    within = torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (bounds[:-1] + (within * bounds.diff()).long()).tolist()
