# SPDX-License-Identifier: Apache-2.0
"""The real images of an evaluation: where they come from, and which of them serve for what."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from genmonitor.evaluation.baseline import DRAWS
from genmonitor.evaluation.data.images import READ_TWICE, ImageKey, ImageSource

MAX_PERMUTED = 1_000_000
MAX_IMAGES, LEAST_IMAGES = 5000, 1000
"""Upper and lower bound of the images that regions are found in, as far as there are so many."""
USUAL_BYTES, MOST_BYTES = 2**28, 2**30
"""Of these images, in float32: more than 256 MiB only for the lower bound, and never more than 1 GiB."""
MAX_SITES, LEAST_SITES = 64**2, 16**2
"""Of larger images, so many sites of patches."""
MAX_WORK = 1.5e11
"""Products of values of two sites in an image, over all images and pairs of sites: about half a minute on one core."""


@dataclass(frozen=True)
class ReferenceImages:
    """Where real images come from: each a Dataset, a DataLoader over one, or a tensor.

    Attributes:
        given: a set to take all of them from; the two others are then not looked at.
        training: what the generator is trained on.
        validation: what it is not trained on.
        image_key: where the images are in a batch, see `find_images`.
        name: what errors and notes call the set that was given.
        with_index: makes data with access by index of data that may be streamed, called with their name; every process
            calls it where images are needed.
    """

    given: Any = None
    training: Any = None
    validation: Any = None
    image_key: ImageKey = None
    name: str = "`real_images`"
    with_index: Callable[[Any, str], Any] = lambda data, name: data

    def source(self) -> ImageSource:
        """Return the images for what is fixed at the start: those given, else the training data.

        Raises:
            ValueError: if there are none.
        """
        if self.given is not None:
            return self._source(self.given, self.name)
        if self.training is None:
            raise ValueError("Expected real images, but the Trainer has no training data. Give `real_images=`.")
        return self._source(self.training, "the training data")

    def held_out(self) -> ImageSource | None:
        """Return the images that the generator is not trained on, None where they are not a set of their own."""
        if self.given is not None or self.validation is None:
            return None
        return self._source(self.validation, "the validation data")

    def compared(self) -> ImageSource:
        """Return the images to compare generated ones with: the validation data if there are any."""
        return self.held_out() or self.source()

    def notes(self) -> tuple[str, ...]:
        """Return what the user should know of where they come from."""
        if self.given is not None or self.validation is not None:
            return ()
        return (
            "there is no validation data, no `validation_step`, or validation is switched off: generated images are "
            "compared with training images, so p-values may be too small or too large; give validation data, in "
            "Lightning with a `validation_step`, which may be empty",
        )

    def _source(self, data: Any, name: str) -> ImageSource:
        return ImageSource(self.with_index(data, name), self.image_key, name)


@dataclass(frozen=True)
class RealSplit:
    """Which real images serve for what.

    None is both compared with and drawn for the baseline. Clusters may be found in images that are compared with too:
    no generated image has a part in them, and so they are the same at every seed, but for sites that vary in images
    that are compared with alone: these are constant.

    Attributes:
        source: the set that the clusters and the baseline come from.
        for_clusters: indices into it, rising, the same at every seed.
        for_baseline: indices into it.
        compared: the set that generated images are compared with.
        for_comparison: indices into it.
        notes: what the user should know.
    """

    source: ImageSource
    for_clusters: list[int]
    for_baseline: Tensor
    compared: ImageSource
    for_comparison: list[int]
    notes: tuple[str, ...]

    def signature(self) -> list[float]:
        """Return numbers that are others for other images."""
        parts = ((self.source, self.for_clusters), (self.compared, self.for_comparison))
        return [float(x) for source, chosen in parts for x in (len(source), source.read(chosen[:16]).double().sum())]


def split_reference(
    real: ReferenceImages,
    n_cluster_images: int | None,
    n_samples: int,
    block_size: int | None,
    seed: int,
    patch_size: int | None = None,
) -> RealSplit:
    """Choose real images: to compare with at random, to find clusters in evenly and whatever the seed.

    Args:
        real: where they come from.
        n_cluster_images: maximum number of images for the kernel's gamma and the clusters; None for `image_budget`.
        n_samples: images to compare with.
        block_size: their number is cut to a multiple of it.
        seed: of the choice of those to compare with.
        patch_size: side of a site, for the budget; None for a chosen one.

    Raises:
        ValueError: if there are no images, fewer than 4 (2 for clusters, 2 to compare with), or of several shapes.
    """
    source, held_out = real.source(), real.held_out()
    generator = torch.Generator().manual_seed(seed)
    # beyond what disjoint draws of the baseline take, real images are of no use
    order = random_order(len(source), 2 * (DRAWS + 2) * n_samples, generator)
    notes = [*real.notes(), *source.notes, *(() if held_out is None else held_out.notes)]
    if held_out is None:
        compared, half = source, min(n_samples, len(order) // 2)
        chosen, rest = order[:half], order[half:]
    else:
        compared = held_out
        chosen = random_order(len(compared), n_samples, generator)[:n_samples]
        rest = _without(source, order, compared, chosen)
        if len(rest) < len(order):
            notes.append(
                f"{len(order) - len(rest)} of the {len(chosen)} validation images that were chosen are training images "
                "too; the baseline is taken from the others"
            )
    if block_size is not None:
        chosen = chosen[: len(chosen) - len(chosen) % block_size]
    _check_enough(source, compared, len(rest), len(chosen), block_size)
    shape = _check_one_shape(source, rest, compared, chosen)
    for_clusters = evenly_spread(len(source), n_cluster_images or image_budget(shape, patch_size))
    notes += _size_notes(len(rest), len(chosen), n_samples)
    notes += source.reading_notes(rest[:READ_TWICE].tolist())
    return RealSplit(source, for_clusters, rest, compared, chosen.tolist(), tuple(notes))


def image_budget(shape: tuple[int, ...], patch_size: int | None = None) -> int:
    """Return the number of images [c, h, w] to find regions in: 5000, fewer if they are large.

    Example:
        >>> [image_budget((3, side, side)) for side in (32, 64, 128, 256, 512)]
        [5000, 2980, 1365, 1000, 341]
    """
    size = 4 * math.prod(shape)
    affordable = min(USUAL_BYTES // size, MAX_WORK / cka_work(1, shape, patch_size))
    return int(min(MAX_IMAGES, max(affordable, min(LEAST_IMAGES, MOST_BYTES // size))))


def chosen_patch_size(shape: tuple[int, ...]) -> int:
    """Return the side of a site of images [c, h, w]: the smallest that leaves at most 64×64 sites.

    Raises:
        ValueError: if no square tiles the images so.

    Example:
        >>> [chosen_patch_size((3, side, side)) for side in (28, 64, 96, 256, 512)]
        [1, 1, 2, 4, 8]
    """
    height, width = shape[1:]
    if height * width <= MAX_SITES:
        return 1
    for side in range(2, min(height, width) + 1):
        if not height % side and not width % side and LEAST_SITES <= height * width / side**2 <= MAX_SITES:
            return side
    raise ValueError(
        f"Expected images whose height and width have a common divisor that leaves 256 to 4096 sites, but got "
        f"{height}×{width}. Crop or resize them, give `patch_size`, or your own `partition`, such as "
        "PixelPartition.grid."
    )


def cell_side(shape: tuple[int, ...], patch_size: int) -> int:
    """Return the side of squares whose averages clusters are found in: the largest that leaves at least 64×64 of them.

    Detail within a site does not say which sites vary together, but to compare it takes most of the time.

    Example:
        >>> [cell_side((3, side, side), side // 32) for side in (32, 64, 128, 256)]
        [1, 1, 2, 4]
    """
    fits = [x for x in range(1, patch_size + 1) if not patch_size % x and math.prod(shape[1:]) >= MAX_SITES * x**2]
    return max(fits, default=1)


def cka_work(n: int, shape: tuple[int, ...], patch_size: int | None = None) -> float:
    """Return the products of values of two sites in an image, over n images [c, h, w] and all pairs of sites."""
    channels, height, width = shape
    side = patch_size or math.ceil((height * width / MAX_SITES) ** 0.5)
    sites = (height // side) * (width // side)
    return float(n) * sites**2 * channels * (side // cell_side(shape, side)) ** 2


def evenly_spread(length: int, count: int) -> list[int]:
    """Choose indices below a length: all if they are no more than `count`, else one from each of as many stretches.

    An index lies at random in its stretch, by a generator that is always the same: where classes take turns, a fixed
    distance would choose images of one class alone.

    Example:
        >>> evenly_spread(4, 10), evenly_spread(10, 3) == evenly_spread(10, 3)
        ([0, 1, 2, 3], True)
    """
    if length <= count:
        return list(range(length))
    bounds = torch.arange(count + 1) * length // count
    within = torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (bounds[:-1] + (within * bounds.diff()).long()).tolist()


def random_order(n: int, wanted: int, generator: torch.Generator) -> Tensor:
    """Return the whole numbers below n in a random order; of more than a million at least as many as are wanted.

    A permutation of all indices of a set of many millions would take seconds and gigabytes.
    """
    if n <= MAX_PERMUTED:
        return torch.randperm(n, generator=generator)
    some = torch.randint(n, (2 * wanted,), generator=generator).unique()
    return some[torch.randperm(len(some), generator=generator)]


def _without(source: ImageSource, order: Tensor, compared: ImageSource, chosen: Tensor) -> Tensor:
    """Return those of the training images that are not among the validation images compared with."""
    if source.root() is not compared.root():
        return order
    taken = set(compared.places(chosen.tolist()))
    return order[torch.tensor([place not in taken for place in source.places(order.tolist())], dtype=torch.bool)]


def _check_enough(source: ImageSource, compared: ImageSource, rest: int, chosen: int, block_size: int | None) -> None:
    if chosen < (block_size or 2):
        wanted = f"one block needs {block_size}" if block_size else "a comparison needs 2"
        raise ValueError(
            f"Too few real images: {compared.name} holds {len(compared)}, which leaves {chosen} to compare with, but "
            f"{wanted}. Give more images with `real_images=`."
        )
    if rest < 2:
        raise ValueError(
            f"Too few real images: {source.name} holds {len(source)}, which leaves {rest} for clusters and baseline, "
            "but they need 2. Give more images with `real_images=`."
        )


def _check_one_shape(source: ImageSource, rest: Tensor, compared: ImageSource, chosen: Tensor) -> tuple[int, ...]:
    """Return the shape of an image, the same in both sets."""
    shapes = [list(x.read(i[:1].tolist()).shape[1:]) for x, i in ((source, rest), (compared, chosen))]
    if shapes[0] == shapes[1]:
        return tuple(shapes[0])
    raise ValueError(
        f"Expected real images of one shape, but {source.name} holds {shapes[0]} and {compared.name} {shapes[1]}. "
        "Resize or convert them in the dataset's transform, or give other images with `real_images=`."
    )


def _size_notes(rest: int, chosen: int, n_samples: int) -> list[str]:
    notes = []
    if chosen < n_samples:
        notes.append(f"only {chosen} real images available for comparison with {n_samples} generated ones")
    if rest < 2 * n_samples:
        notes.append(
            f"only {rest} real images for {n_samples}-image draws: treat the bands as approximate "
            f"({2 * n_samples} or more is better)"
        )
    return notes
