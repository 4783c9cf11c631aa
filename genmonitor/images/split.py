# SPDX-License-Identifier: Apache-2.0
"""Split of the real images by purpose in an evaluation of regions, and the number that it can afford."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from genmonitor.images.compared_sets import range_doubt
from genmonitor.images.image_set import READ_TWICE, ImageSet, random_order

DRAWS = 20
"""Number of draws of real images in the baseline."""
MAX_SITES = 32**2
"""Number of sites from which they are patches, and of sites to compare halves on. Four times as many cost 16 times."""


class RealSplit(NamedTuple):
    """Split of the real images by purpose.

    No image is both compared with and drawn for the baseline. Regions may be found in images to compare with too, since
    they do not depend on generated images. They are therefore the same at every seed. Sites that vary only in images to
    compare with are constant.

    Attributes:
        regions: Images to find the regions in, in the order of the data, the same at every seed.
        baseline: Images to draw in place of generated ones.
        comparison: Images to compare generated ones with.
        notes: Notes for the user.
    """

    regions: ImageSet
    baseline: ImageSet
    comparison: ImageSet
    notes: tuple[str, ...]

    def signature(self) -> list[float]:
        """Return numbers that differ for other images."""
        return [*self.regions.signature(), *self.comparison.signature()]


def split_reference(
    real: ImageSet,
    n_cluster_images: int | None,
    n_samples: int,
    block_size: int | None,
    seed: int,
    patch_size: int | None = None,
) -> RealSplit:
    """Split real images: those to compare with at random, those for regions evenly and independently of the seed.

    Args:
        real: Source of the real images.
        n_cluster_images: Largest number of images for the kernel's gamma and the regions; None for `image_budget`.
        n_samples: Number of images to compare with.
        block_size: Block size, of which the number of images to compare with is a multiple.
        seed: Seed of the choice of images to compare with.
        patch_size: Side of a site, for the budget; None for the automatic one.

    Raises:
        ValueError: If there are fewer than 4 images (2 for clusters, 2 to compare with), or they have different shapes.
    """
    compared, generator = real.compared, torch.Generator().manual_seed(seed)
    # disjoint draws of the baseline need no further real images
    order = random_order(len(real), 2 * (DRAWS + 2) * n_samples, generator)
    if compared is real:
        half = min(n_samples, len(order) // 2)
        chosen, rest = order[:half].tolist(), order[half:].tolist()
    else:
        chosen, rest = random_order(len(compared), n_samples, generator)[:n_samples].tolist(), order.tolist()
    if block_size is not None:
        chosen = chosen[: len(chosen) - len(chosen) % block_size]
    comparison, notes = compared.subset(chosen), [*real.notes()]
    if compared is not real:
        notes += compared.notes()
        (root, places), (compared_root, taken) = real.subset(rest).places(), comparison.places()
        at = dict(zip(places, rest, strict=True))
        common = [(at[place], i) for i, place in enumerate(taken) if place in at]
        if compared_root is root or (len(compared_root) == len(root) and _same_images(real, comparison, common)):  # type: ignore[arg-type]
            known = set(taken)
            rest = [i for i, place in zip(rest, places, strict=True) if place not in known]
        if len(rest) < len(order):
            notes.append(
                f"{len(order) - len(rest)} of the {len(chosen)} validation images that were chosen are training images "
                "too; the baseline is taken from the others"
            )
    needs = f"one block needs {block_size}" if block_size else "a comparison needs 2"
    _check_enough(compared, len(chosen), block_size or 2, f"to compare with, but {needs}")
    _check_enough(real, len(rest), 2, "for clusters and baseline, but they need 2")
    baseline = real.subset(rest)
    if baseline.shape != comparison.shape:
        raise ValueError(
            f"Expected real images of one shape, but {real.name} holds {list(baseline.shape)} and {compared.name} "
            f"{list(comparison.shape)}. Resize or convert them in the dataset's transform, or give other images with "
            "`real_images=`."
        )
    for_regions = evenly_spread(len(real), n_cluster_images or image_budget(baseline.shape, patch_size))
    notes += comparison.few_notes(n_samples)
    if len(rest) < 2 * n_samples:
        notes.append(
            f"only {len(rest)} real images for {n_samples}-image draws: treat the baseline as approximate "
            f"({2 * n_samples} or more is better)"
        )
    notes += baseline.reading_notes()
    notes += [*comparison.reading_notes(), *_range_notes(baseline, comparison)] if compared is not real else []
    return RealSplit(real.subset(for_regions), baseline, comparison, tuple(notes))


def _range_notes(training: ImageSet, validation: ImageSet) -> list[str]:
    """Return a note if two sets of real images seem to be scaled differently, as if one lacked a transform."""
    one, other = training.first(READ_TWICE), validation.first(READ_TWICE)
    if not (range_doubt(one, other) or range_doubt(other, one)):
        return []
    ranges = [f"[{float(some.min()):.3g}, {float(some.max()):.3g}]" for some in (one, other)]
    return [
        f"{training.name} has values in {ranges[0]}, but {validation.name} in {ranges[1]}: regions and baseline are of "
        "the first, and generated images are compared with the second. Give both the same transform"
    ]


def image_budget(shape: tuple[int, ...], patch_size: int | None = None) -> int:
    """Return the number of images [c, h, w] to find regions in: 5000, fewer if they are large.

    Example:
        >>> [image_budget((3, side, side)) for side in (32, 64, 128, 256, 512)]
        [5000, 5000, 1365, 1000, 341]
    """
    size = 4 * math.prod(shape)
    # 256 MiB, and about half a minute on one core; for 1000 images up to 1 GiB
    affordable = min(2**28 // size, 1.5e11 / cka_work(1, shape, patch_size))
    return int(min(5000, max(affordable, min(1000, 2**30 // size))))


def chosen_patch_size(shape: tuple[int, ...]) -> int:
    """Return the side of a site of images [c, h, w]: the smallest that leaves at most 32×32 sites, or else 64×64.

    Raises:
        ValueError: If no square tiles the images so.

    Example:
        >>> [chosen_patch_size((3, side, side)) for side in (28, 47, 64, 96, 118, 256)]
        [1, 1, 2, 3, 2, 8]
    """
    height, width = shape[1:]
    for most in (MAX_SITES, 4 * MAX_SITES):
        if height * width <= most:
            return 1
        for side in range(2, min(height, width) + 1):
            if not height % side and not width % side and 256 <= height * width / side**2 <= most:
                return side
    raise ValueError(
        f"Expected images whose height and width have a common divisor that leaves 256 to 4096 sites, but got "
        f"{height}×{width}. Crop or resize them, give `patch_size`, or your own `partition`, such as "
        "PixelPartition.grid."
    )


def cell_side(shape: tuple[int, ...], patch_size: int) -> int:
    """Return the side of squares whose averages are clustered: the largest that leaves at least 32×32 of them.

    Detail within a site does not help to find sites that vary together, but costs most of the time.

    Example:
        >>> [cell_side((3, side, side), side // 32) for side in (32, 64, 128, 256)]
        [1, 2, 4, 8]
    """
    fits = [x for x in range(1, patch_size + 1) if not patch_size % x and math.prod(shape[1:]) >= MAX_SITES * x**2]
    return max(fits, default=1)


def cka_work(n: int, shape: tuple[int, ...], patch_size: int | None = None) -> float:
    """Return the number of products of values of two sites, over n images [c, h, w] and all pairs of sites."""
    channels, height, width = shape
    side = patch_size or math.ceil((height * width / MAX_SITES) ** 0.5)
    sites = max(1, (height // side) * (width // side))  # a patch larger than the image is refused later
    return float(n) * sites**2 * channels * (side // cell_side(shape, side)) ** 2


def evenly_spread(length: int, count: int) -> list[int]:
    """Choose indices below a length: all if they are at most `count`, else one from each of `count` stretches.

    An index is random in its stretch, always in the same way. If classes alternate, a fixed distance would choose
    images of a single class.

    Example:
        >>> evenly_spread(4, 10), evenly_spread(10, 3) == evenly_spread(10, 3)
        ([0, 1, 2, 3], True)
    """
    if length <= count:
        return list(range(length))
    bounds = torch.arange(count + 1) * length // count
    within = torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (bounds[:-1] + (within * bounds.diff()).long()).tolist()


def _same_images(one: ImageSet, other: ImageSet, pairs: list[tuple[int, int]]) -> bool:
    """Return True if the first images of two sets at pairs of indices are the same: their data was opened twice."""
    first = list(zip(*pairs[:READ_TWICE], strict=True))
    return bool(first) and torch.equal(one.read(first[0]), other.read(first[1]))


def _check_enough(images: ImageSet, left: int, needed: int, what: str) -> None:
    if left < needed:
        raise ValueError(
            f"Too few real images: {images.name} holds {len(images)}, which leaves {left} {what}. Give more images "
            "with `real_images=`."
        )
