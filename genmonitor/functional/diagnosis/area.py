# SPDX-License-Identifier: Apache-2.0
"""Diagnosis of one area: its distance from real images, the faults that explain it, variety, and typical samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.distance import Distance, all_views, mean_of_pairs, own_gram
from genmonitor.functional.diagnosis.explain import IDENTIFIED, SURE, Explained, arbiter_of, explained, read_sides
from genmonitor.functional.diagnosis.fit import CHANCE, Faults, PutFault, Side, usable
from genmonitor.functional.diagnosis.images import SAMPLES, Images, sides
from genmonitor.functional.diagnosis.kinds import Models
from genmonitor.functional.diagnosis.kinds.variety import Modes
from genmonitor.functional.diagnosis.missing import Missing
from genmonitor.functional.diagnosis.proportions import Weighted, match, separability
from genmonitor.functional.diagnosis.readings import Said, differing
from genmonitor.functional.permutation import LEVEL, Blocks, familywise_p_values, standardized
from genmonitor.linalg.distances import squared_distances

MARGIN, MOSTLY, NEARLY_ALL = 0.2, 0.6, 0.8
"""Share by which proportions must explain more than faults to be named. Then the smallest share if they leave no more
than chance, and if they leave more, as when weights imitate an unknown fault.
"""
CLEAR = 8.0
"""Smallest distance at which proportions are named."""


@dataclass(frozen=True, eq=False)
class AreaDiagnosis:
    """Measurements of an area.

    Attributes:
        mask: Boolean mask [H, W] of the pixels.
        distance: Distance from real images in standard deviations of chance, judged on half of the images.
        p: P-value of no difference, by permutation.
        explained: Best faults; None if the area does not differ, or no fault brings it closer.
        readings: Readings of the bounding rectangle of the area that differ most; empty if it does not differ.
        proportions: Share of the distance explained by correct images in wrong proportions; 0 if that is not the fault.
        weights: Weights of the chosen real images, of mean 1, below 1 for those that are too rare; None if not fitted.
        spread: Mean squared distance among generated images, divided by that among real ones.
        nearest: Median distance to the nearest other generated image, divided by that of real images.
        samples: Indices of the generated images that show the difference most clearly.
        of_image: Share of the distance of the whole image that faults in this area alone explain.
        missing: Kinds of real images of which there are next to no samples; None if there are none, or not searched.
    """

    mask: Tensor
    distance: float
    p: float
    explained: Explained | None
    proportions: float
    weights: Tensor | None
    spread: float
    nearest: float
    samples: tuple[int, ...]
    of_image: float
    readings: tuple[Said, ...] = ()
    missing: Missing | None = None


def diagnose_area(
    images: Images, mask: Tensor, models: Models, image: Distance | None = None, p: float | None = None
) -> AreaDiagnosis:
    """Diagnose an area of images.

    Args:
        images: Images of both sides.
        mask: Boolean mask [H, W], true somewhere.
        models: Fault models to try.
        image: Distance of the whole image, for `of_image`; None if the area is the whole image.
        p: P-value of no difference from the map that found the area, whose place is then refined. None to test the
            area, whose place is then fixed.
    """
    around = p is not None
    if p is None:
        p = _permutation_p(images, mask, around=False)
        shown = _by_surroundings(images, mask, models, image) if p > LEVEL else None
        if shown is not None:
            return shown
    fitted, judged = sides(images, mask, all_views(images.halves[0][1], mask, around))
    found, share, weights, of_image = None, 0.0, None, 0.0
    readings: tuple[Said, ...] = ()
    tried = usable(models, fitted, images.halves[0][0])
    if p <= LEVEL:
        numbers = read_sides(images, mask)
        readings = tuple(differing(*numbers, LEVEL / 5, images.seed)) if numbers[0] else ()
    if p <= LEVEL and judged.left(()) > 0:
        found = explained(fitted, judged, tried, arbiter_of(images, mask, numbers), p)
        if bool(mask.all()):  # whole images are in wrong proportions; weights fit a part of them to nearly anything
            share, weights, found = _in_wrong_proportions(images, fitted, judged, found, p)
    if found and found.named:
        of_image = found.share if image is None else _share_of_image(image, images, mask, found.faults)
    spread, nearest, samples = _variety(judged.distance, images)
    if readings and not (found and found.identified):  # which the finding names then
        samples = tuple(images.chosen_fake[readings[0].order[:SAMPLES]].tolist())
    variety = spread, nearest, samples
    return AreaDiagnosis(mask, judged.left(()), p, found, share, weights, *variety, of_image, readings)


def _by_surroundings(images: Images, mask: Tensor, models: Models, image: Distance | None) -> AreaDiagnosis | None:
    """Return the faults of an area that is correct by itself; None if no fault of it explains its surroundings.

    A part of another image is correct by itself, and so may be a slightly brighter part: both show at the edge. But the
    surroundings themselves may be wrong.
    """
    p = 1.0 if bool(mask.all()) else _permutation_p(images, mask, around=True)
    if p > SURE:
        return None
    found = diagnose_area(images, mask, models, image, p)
    return found if found.explained and found.explained.named and found.explained.share >= IDENTIFIED else None


def distance_around(images: Images, mask: Tensor) -> float:
    """Return the distance of all that is around an area [H, W] from real images; 0 if no more than chance."""
    if bool(mask.all()) or _permutation_p(images, ~mask, around=False) > SURE:
        return 0.0
    return sides(images, ~mask, all_views(images.halves[0][1], ~mask))[1].left(())


def _share_of_image(image: Distance, images: Images, mask: Tensor, faults: Faults) -> float:
    """Return the share of the whole image's distance that faults of an area explain."""
    fake, real = images.halves[1]
    whole = Side.of(image, real, fake, mask, images.range, images.seed + 1)
    return max(0.0, 1 - whole.left(faults) / max(whole.left(()), CHANCE))


def _rather_proportions(share: float, of_faults: float, distance: float) -> bool:
    """Return True if proportions explain far more than faults, and leave little, or faults leave most.

    If real images vary in the property that a fault changes, weights imitate the fault: for images that are all too
    dark they prefer the darkest. Correct images leave no more than chance once they are weighted.
    """
    right, share = (1 - share) * distance <= CLEAR, min(share, 1.0)
    return share > max(of_faults + MARGIN, MOSTLY if right else NEARLY_ALL) and (right or of_faults < IDENTIFIED)


def _in_wrong_proportions(
    images: Images, fitted: Side, judged: Side, found: Explained | None, p: float
) -> tuple[float, Tensor | None, Explained | None]:
    """Return the share that wrong proportions explain, the weights, and these as the fault, or 0, None and the faults.

    Wrong proportions are reported only if a classifier cannot tell the weighted real images from generated ones.
    """
    distance = judged.left(())
    if p > SURE or distance < CLEAR:  # weights explain nearly all of what is chance
        return 0.0, None, found
    share, weights = match(judged.distance, judged.distance.embedded(images.real), fitted.fake, judged.fake)
    by_faults = found.share if found is not None and found.named else 0.0
    if not (_rather_proportions(share, by_faults, distance) and _alike(images, weights)):
        return 0.0, None, found
    share = min(share, 1.0)
    return share, weights, Explained((PutFault(Modes(), share),), (share,), near=True, named=True)


def _alike(images: Images, weights: Tensor) -> bool:
    """Return True if a classifier sees no difference from real images with weights."""
    n, m = len(images.fake) // 2, len(images.real) // 2
    fitted = Weighted(images.fake[:n], images.real[:m], weights[:m])
    judged = Weighted(images.fake[n:], images.real[m:], weights[m:])
    # AUC of a classifier of generated and weighted real images from which proportions are not the fault
    return separability(fitted, judged, images.readings, images.seed) <= 0.6


def _permutation_p(images: Images, area: Tensor, around: bool) -> float:
    """Test an area for a difference by all images; the kernel is that of both sides together, so the level is exact."""
    blocks = Blocks.of(images.fake, images.real, seed=images.seed)
    both = blocks.take(images.fake, images.real)
    unit = min(len(images.fake), len(images.real))
    gram = own_gram(both, all_views(both, area, around), unit).fill_diagonal_(0)
    rows = gram.unflatten(0, (-1, blocks.size)).sum(1)
    statistics = blocks.quadratic_forms(rows.unflatten(1, (-1, blocks.size)).sum(2).cpu())
    return float(familywise_p_values(standardized(statistics)[None]))


def _variety(distance: Distance, images: Images) -> tuple[float, float, tuple[int, ...]]:
    """Return spread and nearest distance relative to real images, and the samples that show the difference most."""
    fake, real = distance.embedded(images.fake), distance.embedded(images.real)
    grams = [squared_distances(x[0], x[0]) for x in (fake, real)]
    spreads = [float(mean_of_pairs(gram)) for gram in grams]
    nearest = [float(gram.fill_diagonal_(torch.inf).amin(1).median()) ** 0.5 for gram in grams]
    own = distance.gram(fake, fake).fill_diagonal_(0).sum(1) / (len(fake[0]) - 1)
    witness = own - distance.gram(fake, real).mean(1)
    most = witness.argsort(descending=True)[:SAMPLES].cpu()
    ratios = [a / b if b else float("nan") for a, b in (spreads, nearest)]
    return ratios[0], ratios[1], tuple(images.chosen_fake[most].tolist())
