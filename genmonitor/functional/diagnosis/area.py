# SPDX-License-Identifier: Apache-2.0
"""All that is measured of one area: how far it is off, what explains that, how varied it is, which samples show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.distance import Distance, all_views, mean_of_pairs
from genmonitor.functional.diagnosis.fit import ADDS, CHANCE, Faults, PutFault, Side, closer, fit, shares, usable
from genmonitor.functional.diagnosis.images import SAMPLES, Images, sides
from genmonitor.functional.diagnosis.kinds import FaultModel
from genmonitor.functional.diagnosis.kinds.variety import Modes
from genmonitor.functional.diagnosis.proportions import match
from genmonitor.functional.two_sample_test import LEVEL, random_splits
from genmonitor.linalg.distances import squared_distances

NAMED = 0.2
"""What faults must explain to be named."""
SHOWN = 0.5
"""What faults must explain to be named without a relative similarity test, where the area surely differs."""
MARGIN, MOSTLY, NEARLY_ALL = 0.2, 0.6, 0.8
"""How much more than the faults proportions must explain to be what is named; how much at least, if they leave no more
than chance, and if they leave more, as where weights imitate a fault that nobody found."""
SURE, CLEAR = LEVEL / 5, 8.0
"""Largest p-value, and least distance, at which proportions are named."""
TRIED = 3
"""Areas of which it is tried whether their sides should move."""
PERMUTATIONS = 199


@dataclass(frozen=True, eq=False)
class Explained:
    """Faults that explain part of a distance.

    Attributes:
        faults: in the order in which they are put into one image.
        shares: what each explains.
        named: whether they explain enough, beyond chance, to be said as more than the best there is.
    """

    faults: Faults
    shares: tuple[float, ...]
    named: bool

    @property
    def share(self) -> float:
        """What they explain together."""
        return sum(self.shares)


@dataclass(frozen=True, eq=False)
class AreaDiagnosis:
    """What was measured of an area.

    Attributes:
        mask: bool [H, W].
        distance: in standard deviations of what chance makes of it; judged on half of the images.
        p: of no difference, by permutation.
        explained: the best faults; None where the area does not differ, or no fault brings it closer.
        proportions: share of the distance that is right images in wrong proportions; 0 where it does not differ.
        weights: of the chosen real images, of mean 1, that say which are too rare; None where that was not asked.
        spread: mean squared distance among generated images over that among real ones.
        nearest: median distance to the nearest other generated image over the same of real ones.
        samples: indices of the generated images that show the difference most.
        of_image: share of the whole image's distance that the faults explain when put into this area alone.
        failures: what went wrong with fault models, in sentences.
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
    failures: tuple[str, ...] = ()


def diagnose_area(
    images: Images,
    mask: Tensor,
    models: Sequence[FaultModel],
    image: Distance | None = None,
    skip_failing: bool = False,
    p: float | None = None,
) -> AreaDiagnosis:
    """Measure an area of images.

    Args:
        images: of both sides.
        mask: bool [H, W], true somewhere.
        models: to try.
        image: distance of the whole image, for `of_image`; None where the area is all of it.
        skip_failing: leave out fault models that fail, rather than to raise their error.
        p: of no difference, by the map that found the area, whose place is then not exact; None for an area that is
            tested, and stays where it is.
    """
    failures: list[str] = []
    around = p is not None
    if p is None:
        p = _permutation_p(images, mask, around=False)
        shown = _by_surroundings(images, mask, models, image, skip_failing) if p > LEVEL else None
        if shown is not None:
            return shown
    fitted, judged = sides(images, mask, all_views(images.halves[0][1], mask, around))
    explained, share, weights, of_image = None, 0.0, None, 0.0
    tried = usable(models, fitted, images.halves[0][0], failures, skip_failing)
    if p <= LEVEL and judged.left(()) > 0:
        if bool(mask.all()):  # whole images are in wrong proportions; weights fit a part of them to nearly anything
            share, weights = _matched(images, fitted, judged, ())
        explained = _explained(fitted, judged, tried, share, p)
        if weights is not None:
            # weights explain nearly all of what is chance
            share = 0.0 if p > SURE or judged.left(()) < CLEAR else share
            share, weights, explained = _divided(images, fitted, judged, explained, share, weights)
    if explained and explained.named:
        of_image = explained.share if image is None else _share_of_image(image, images, mask, explained.faults)
    spread, nearest, samples = _variety(judged.distance, images)
    return AreaDiagnosis(
        mask, judged.left(()), p, explained, share, weights, spread, nearest, samples, of_image, tuple(failures)
    )


def _by_surroundings(
    images: Images, mask: Tensor, models: Sequence[FaultModel], image: Distance | None, skip_failing: bool
) -> AreaDiagnosis | None:
    """Return what is wrong with an area that is right alone; None where no fault of it explains what is around it.

    A part of another image is right alone, and so may be one that is a little brighter: that shows at its edge. But
    what is around it may be what is wrong.
    """
    if bool(mask.all()) or (p := _permutation_p(images, mask, around=True)) > SURE:
        return None
    found = diagnose_area(images, mask, models, image, skip_failing, p)
    return found if found.explained and found.explained.named and found.explained.share >= SHOWN else None


def _share_of_image(image: Distance, images: Images, mask: Tensor, faults: Faults) -> float:
    """Return what faults of an area explain of the whole image's distance."""
    fake, real = images.halves[1]
    whole = Side.of(image, real, fake, mask, images.range, images.seed + 1)
    return max(0.0, 1 - whole.left(faults) / max(whole.left(()), CHANCE))


def _explained(
    fitted: Side, judged: Side, models: Sequence[FaultModel], proportions: float, p: float
) -> Explained | None:
    """Return as many faults as add something on the other half; one where proportions explain more."""
    best: Explained | None = None
    for faults in fit(fitted, models):
        parts = tuple(shares(judged, faults))
        if best is not None and (min(parts) < ADDS or sum(parts) < best.share + ADDS):
            break
        # of a small distance the test sees little, though half of it is explained on images that were not fitted
        enough = sum(parts) >= (SHOWN if p <= SURE else math.inf) or closer(judged, faults) <= LEVEL
        best = Explained(faults, parts, sum(parts) >= NAMED and enough)
        if _rather_proportions(proportions, best.share, judged.left(())):
            break
    return best


def _rather_proportions(share: float, of_faults: float, distance: float) -> bool:
    """Say whether proportions explain far more than faults, and either leave images right or faults leave most.

    Where real images vary in what a fault changes, weights imitate the fault: of images that are all too dark they take
    the darkest. Those that are right leave no more than chance once they are weighted.
    """
    right = (1 - share) * distance <= CLEAR
    return share > max(of_faults + MARGIN, MOSTLY if right else NEARLY_ALL) and (right or of_faults < SHOWN)


def _matched(images: Images, fitted: Side, judged: Side, faults: Faults) -> tuple[float, Tensor]:
    """Return what weights of all real images, with faults, remove of the distance that is left, and the weights."""
    real = judged.distance.embedded(replace(judged, real=images.real).put(faults))
    found = match(judged.distance, real, fitted.fake, judged.fake)
    return found.share, found.weights


def _divided(
    images: Images, fitted: Side, judged: Side, explained: Explained | None, share: float, weights: Tensor
) -> tuple[float, Tensor, Explained | None]:
    """Divide the distance between proportions and faults; what both can explain belongs to the one with more alone."""
    named = explained is not None and explained.named
    by_faults = explained.share if explained is not None and named else 0.0
    if _rather_proportions(share, by_faults, judged.left(())):
        return min(share, 1.0), weights, Explained((PutFault(Modes(), share),), (share,), True)
    if explained is not None and named:
        after, weights = _matched(images, fitted, judged, explained.faults)
        share = max(1 - explained.share, 0.0) * after
    return min(max(share, 0.0), 1.0), weights, explained


def _permutation_p(images: Images, area: Tensor, around: bool) -> float:
    """Test no difference of an area by all images; the kernel is that of both sides together, so the level is exact."""
    n, m = len(images.fake), len(images.real)
    both = torch.cat([images.fake, images.real])
    gram = Distance.with_gram(both, all_views(both, area, around), min(n, m))[1].double().fill_diagonal_(0)
    fake = torch.cat([(torch.arange(n + m) < n)[None], random_splits(n + m, n, PERMUTATIONS, images.seed)]).T.to(gram)
    real = 1 - fake
    of_fake, of_real = gram @ fake, gram @ real
    within = (fake * of_fake).sum(0) / (n * (n - 1)) + (real * of_real).sum(0) / (m * (m - 1))
    statistics = within - 2 * (fake * of_real).sum(0) / (n * m)
    return float((statistics >= statistics[0] - 1e-9 * statistics[0].abs()).double().mean())


def _variety(distance: Distance, images: Images) -> tuple[float, float, tuple[int, ...]]:
    """Return spread and nearest neighbor relative to real images, and the samples that show the difference most."""
    fake, real = distance.embedded(images.fake), distance.embedded(images.real)
    grams = [squared_distances(x[0], x[0]) for x in (fake, real)]
    spreads = [float(mean_of_pairs(gram)) for gram in grams]
    nearest = [float(gram.fill_diagonal_(torch.inf).amin(1).median()) ** 0.5 for gram in grams]
    own = distance.gram(fake, fake).fill_diagonal_(0).sum(1) / (len(fake[0]) - 1)
    witness = own - distance.gram(fake, real).mean(1)
    most = witness.argsort(descending=True)[:SAMPLES].cpu()
    ratios = [a / b if b else float("nan") for a, b in (spreads, nearest)]
    return ratios[0], ratios[1], tuple(images.chosen_fake[most].tolist())
