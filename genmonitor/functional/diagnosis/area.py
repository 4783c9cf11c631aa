# SPDX-License-Identifier: Apache-2.0
"""All that is measured of one area: how far it is off, what explains that, how varied it is, which samples show it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from genmonitor.functional.areas import largest_piece
from genmonitor.functional.diagnosis.distance import Distance, mean_of_pairs
from genmonitor.functional.diagnosis.fault_models import Fault, FaultModel, Measured
from genmonitor.functional.diagnosis.fit import ADDS, CHANCE, Faults, PutFault, Side, closer, fit, put_faults, shares
from genmonitor.functional.diagnosis.proportions import match
from genmonitor.functional.two_sample_test import LEVEL, random_splits
from genmonitor.linalg.distances import squared_distances
from genmonitor.linalg.whitening import FLOOR, REACH, Whitening

HALF = 250
"""Images a side that faults are fitted on at most, and as many that they are judged on."""
NAMED = 0.2
"""What faults must explain to be named."""
SHOWN = 0.5
"""What faults must explain to be named without a relative similarity test, where the area surely differs."""
MARGIN, MOSTLY = 0.2, 0.6
"""How much more than the faults, and how much at least, proportions must explain to be what is named."""
SURE = LEVEL / 5
"""Largest p-value at which proportions are named."""
NEAR = 0.5
"""Part of the usual distance to the nearest image below which an image counts as a copy."""
EDGE, LEAST, KEPT = 2, 12, 0.25
"""Pixels that an area of the map may be too large by, fewest pixels without them, and least part of the area."""
SEARCHED = 112
"""Images a side that say where in an area of the map the fault is."""
SAMPLES = 8
PERMUTATIONS = 199


@dataclass(frozen=True, eq=False)
class Images:
    """Generated and real images, scaled so that real ones fill [0, 1], in a random order that a seed decides.

    Attributes:
        fake: [N, C, H, W].
        real: [M, C, H, W].
        chosen_fake: which of the given generated images these are [N].
        chosen_real: which of the given real ones [M].
        seed: of this order, and of all that is random later.
    """

    fake: Tensor
    real: Tensor
    chosen_fake: Tensor
    chosen_real: Tensor
    seed: int

    @classmethod
    def of(cls, fake: Tensor, real: Tensor, seed: int) -> Images:
        """Take at most 500 of each side, halves of which are fitted on and judged on."""
        generator = torch.Generator().manual_seed(seed)
        chosen = [torch.randperm(len(x), generator=generator)[: 2 * HALF] for x in (fake, real)]
        low, span = float(real.min()), float(real.max() - real.min()) or 1.0
        some_fake, some_real = ((x[at.to(x.device)] - low) / span for x, at in zip((fake, real), chosen, strict=True))
        return cls(some_fake, some_real, chosen[0], chosen[1], seed)

    @property
    def halves(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Generated and real images of each half."""
        n, m = len(self.fake) // 2, len(self.real) // 2
        return (self.fake[:n], self.real[:m]), (self.fake[n:], self.real[m:])

    @property
    def range(self) -> tuple[float, float]:
        """The range of all images."""
        return min(float(self.fake.min()), 0.0), max(float(self.fake.max()), 1.0)


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


@dataclass(frozen=True, eq=False)
class Repeats:
    """Images that come over and over, or are near copies of real ones.

    Attributes:
        share: of generated images with a near twin, less that of real ones.
        p: of no more than among real images.
        of_distance: part of the distance that is gone when each is counted once.
        samples: indices of generated images with a twin.
    """

    share: float
    p: float
    of_distance: float
    samples: tuple[int, ...]


def diagnose_area(
    images: Images,
    mask: Tensor,
    models: Sequence[FaultModel | Measured],
    image: Distance | None = None,
    skip_failing: bool = False,
    p_map: float | None = None,
) -> AreaDiagnosis:
    """Measure an area of images.

    Args:
        images: of both sides.
        mask: bool [H, W], true somewhere.
        models: to try.
        image: distance of the whole image, for `of_image`; None where the area is all of it.
        skip_failing: leave out fault models that fail, rather than to raise their error.
        p_map: p-value by which a map found the area, which holds of it then. Such areas are larger than the fault by a
            pixel or two, and its edge is another fault than the one inside: what lies within says where the fault is,
            and is what is measured.
    """
    failures: list[str] = []
    by_map = p_map is not None
    areas = within(mask) if by_map else [mask]
    if by_map:
        mask = _located(images, mask, lambda side, fake: _usable(models, side, fake, failures, skip_failing))
    core = within(mask)[: 1 + by_map][-1]
    fitted, judged = _sides(images, core)
    p = _permutation_p(judged, images.seed)
    if p_map is not None and p > LEVEL:  # what the map saw is not within, or too little of it
        fitted, judged = _sides(images, mask)
        p = min(_permutation_p(judged, images.seed), p_map)
    off, explained, share, weights, of_image = judged.left(()), None, 0.0, None, 0.0
    if p <= LEVEL and off > 0:
        usable = _usable(models, fitted, images.halves[0][0], failures, skip_failing)
        if bool(mask.all()):  # whole images are in wrong proportions; weights fit a part of them to nearly anything
            share, weights = _matched(images, fitted, judged, ())
        explained = _explained(fitted, judged, usable, share, p)
        if weights is not None:
            share = 0.0 if p > SURE else share  # weights explain nearly all of what is chance
            share, weights, explained = _divided(images, fitted, judged, explained, share, weights)
        if explained and explained.named:
            of_image = explained.share
            if image is not None:
                fake_b, real_b = images.halves[1]
                whole = Side.of(image, real_b, fake_b, mask, images.range, images.seed + 1)
                of_image = 1 - whole.left(explained.faults) / max(whole.left(()), CHANCE)
    if not bool(mask.all()) and not (explained and explained.named):
        tried = [*_usable(models, fitted, images.halves[0][0], [], skip_failing=True), MISFIT]
        mask, explained = _or_by_surroundings(images, [mask, *areas], tried, explained)
        p = min(p, SURE) if explained and explained.named else p  # that of the surroundings is no larger
        if image is not None and explained and explained.named and by_map:
            fake_b, real_b = images.halves[1]
            whole = Side.of(image, real_b, fake_b, mask, images.range, images.seed + 1)
            of_image = 1 - whole.left(explained.faults) / max(whole.left(()), CHANCE)
    spread, nearest, samples = _variety(judged.distance, images)
    return AreaDiagnosis(mask, off, p, explained, share, weights, spread, nearest, samples, of_image, tuple(failures))


def within(mask: Tensor) -> list[Tensor]:
    """Return an area, and the same without its outermost pixels, one after the other, while enough of it is left.

    Example:
        >>> square = torch.zeros(9, 9, dtype=torch.bool)
        >>> square[:, 2:] = True
        >>> [int(x.sum()) for x in within(square)]
        [63, 54, 45]
    """
    out = [mask]
    for _ in range(EDGE):
        outside = F.max_pool2d((~out[-1])[None].float(), 3, 1, 1)[0] > 0
        if float((~outside).sum()) < max(LEAST, KEPT * float(mask.sum())):
            break
        out.append(~outside)
    return out


def _sides(images: Images, area: Tensor) -> tuple[Side, Side]:
    """Return the half to fit on and the half to judge on, with the distance in an area."""
    (fake_a, real_a), (fake_b, real_b) = images.halves
    distance = Distance.of(real_a, area, min(len(fake_b), len(real_b)))
    return (
        Side.of(distance, real_a, fake_a, area, images.range, images.seed),
        Side.of(distance, real_b, fake_b, area, images.range, images.seed + 1),
    )


def _located(images: Images, mask: Tensor, usable: Callable[[Side, Tensor], list[FaultModel]]) -> Tensor:
    """Return where the fault is that explains most of what is well within an area of the map.

    It is there where generated images are closer to real ones with it than without, pixel by pixel: by the means of
    their characteristic functions, in both views.
    """
    fake, real = images.halves[0]
    side = _sides(images, within(mask)[-1])[0].first(SEARCHED)
    faults = next(fit(side, usable(side, fake)), ())
    if not faults or 1 - side.left(faults) / side.left(()) < NAMED:
        return mask
    everywhere = torch.ones_like(mask)
    faulty = put_faults(real, faults, everywhere.to(real.device), images.range, images.seed)
    gain = torch.zeros(mask.shape, dtype=real.dtype, device=real.device)
    whitening = Whitening.of(real)
    for view in (torch.Tensor.clone, whitening):
        values = [view(x) for x in (fake, real, faulty)]
        mean, deviation = values[1].mean(0), values[1].std(0)
        scale = 1 / (deviation + FLOOR * deviation.max()).clamp_min(torch.finfo(mean.dtype).tiny)
        of_fake, of_real, of_faulty = (_characteristic((x - mean) * scale) for x in values)
        gain += ((of_fake - of_real).square() - (of_fake - of_faulty).square()).sum((0, 1))
    around = F.max_pool2d(mask[None].float(), 3, 1, 1)[0] > 0
    found = (F.avg_pool2d(gain[None], 3, 1, 1)[0] > 0).cpu() & around
    return largest_piece(found) if (found & mask).sum() >= KEPT * mask.sum() else mask


def _characteristic(x: Tensor) -> Tensor:
    """Return the mean of cosine and sine over images [N, C, H, W]: [2, C, H, W]."""
    return torch.stack([x.cos().mean(0), x.sin().mean(0)])


def repeats(images: Images, among_real: bool) -> Repeats:
    """Look for generated images that come over and over or, with `among_real`, for near copies of real ones.

    Distances are of pixels and in units of each image's own usual distance, so that faded images or ones of little
    variety are none. A copy is nearer than half of what is usual among real images; as many as these have do not count.
    """
    n = min(len(images.fake), len(images.real))
    fake, real = ((x[:n] - images.real.mean(0)).flatten(1) for x in (images.fake, images.real))
    of_real = _from_nearest(squared_distances(real, real).fill_diagonal_(torch.inf))
    pairs = squared_distances(fake, real) if among_real else squared_distances(fake, fake).fill_diagonal_(torch.inf)
    of_fake = _from_nearest(pairs)
    limit = NEAR**2 * float(of_real.median())
    usual, twin = (of_real < limit).double().mean(), of_fake < limit
    found = twin.double().mean()
    pool = float(found + usual) / 2
    error = max((2 * pool * (1 - pool) / n) ** 0.5, 1 / n)
    p = float(torch.special.ndtr(-torch.as_tensor(float(found - usual) / error)))
    gone = 0.0
    if not among_real and p <= LEVEL:
        earlier = (pairs < limit * pairs.median(1).values[:, None]).tril(-1).any(1)
        distance = Distance.of(images.real, torch.ones(images.real.shape[2:], dtype=torch.bool), n)
        once, all_of_them, reference = (
            distance.embedded(x) for x in (images.fake[:n][~earlier], images.fake[:n], images.real[:n])
        )
        before = distance.between(all_of_them, reference)
        gone = 1 - distance.between(once, reference) / before if len(once[0]) > 1 and before > CHANCE else 0.0
    chosen = of_fake.where(twin, torch.inf).argsort()[: min(SAMPLES, int(twin.sum()))]
    return Repeats(float(found - usual), p, gone, tuple(images.chosen_fake[chosen.cpu()].tolist()))


def _from_nearest(pairs: Tensor) -> Tensor:
    """Return the squared distance to the nearest in parts of the median one, of each row of squared distances."""
    return pairs.amin(1) / pairs.median(1).values.clamp_min(torch.finfo(pairs.dtype).tiny)


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
        if proportions > max(best.share + MARGIN, MOSTLY):
            break
    return best


def _or_by_surroundings(
    images: Images, areas: Sequence[Tensor], models: Sequence[FaultModel], explained: Explained | None
) -> tuple[Tensor, Explained | None]:
    """Return instead, where that explains more, which fault in which of some areas does with what is around it.

    An area that was drawn from another image is right by itself, and that it is brighter may show at its edge alone.
    """
    around = F.max_pool2d(areas[0][None].float(), 2 * REACH + 1, 1, REACH)[0] > 0
    fitted, judged = _sides(images, around)
    if judged.left(()) <= CHANCE or _permutation_p(judged, images.seed) > SURE:
        return areas[0], explained
    sides = [replace(fitted, area=area.to(images.real.device)) for area in areas]
    ways = [(side, next(fit(side, models))) for side in sides]
    best, faults = min(ways, key=lambda x: x[0].left(x[1]))
    judged = replace(judged, area=best.area)
    share = shares(judged, faults)[0]
    if share < max(NAMED, explained.share if explained else 0.0) or closer(judged, faults) > LEVEL:
        return areas[0], explained
    return best.area.cpu(), Explained(faults, (share,), True)


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
    if share > max(by_faults + MARGIN, MOSTLY):
        return min(share, 1.0), weights, Explained((PutFault(MODES, share),), (share,), True)
    if explained is not None and named:
        after, weights = _matched(images, fitted, judged, explained.faults)
        share = max(1 - explained.share, 0.0) * after
    return min(max(share, 0.0), 1.0), weights, explained


def _usable(
    models: Sequence[FaultModel | Measured], side: Side, fake: Tensor, failures: list[str], skip_failing: bool
) -> list[FaultModel]:
    """Return the models that these images have, each tried once at each strength on a few of them."""
    out: list[FaultModel] = []
    few = side.first(4)
    for model in models:
        try:
            made = model.of(fake, side.real, side.area) if isinstance(model, Measured) else model
            if made is not None:
                for strength in made.strengths:
                    few.put((PutFault(made, strength),))
                out.append(made)
        except Exception as error:
            if not skip_failing:
                raise
            failures.append(f"the fault model {model.name!r} failed: {type(error).__name__}: {error}")
    return out


def _permutation_p(side: Side, seed: int) -> float:
    """Test no difference by the distance, whose kernel is that of the other half: the level is exact."""
    real = side.distance.embedded(side.real)
    across = side.distance.gram(side.fake, real)
    gram = torch.cat([torch.cat([side.fake_gram, across], 1), torch.cat([across.T, side.distance.gram(real, real)], 1)])
    gram = gram.double().fill_diagonal_(0)
    n, m = across.shape
    fake = torch.cat([(torch.arange(n + m) < n)[None], random_splits(n + m, n, PERMUTATIONS, seed)]).T.to(gram)
    real_side = 1 - fake
    within = (fake * (gram @ fake)).sum(0) / (n * (n - 1)) + (real_side * (gram @ real_side)).sum(0) / (m * (m - 1))
    values = within - 2 * (fake * (gram @ real_side)).sum(0) / (n * m)
    return float((values >= values[0] - 1e-9 * values[0].abs()).double().mean())


def _variety(distance: Distance, images: Images) -> tuple[float, float, tuple[int, ...]]:
    """Return spread and nearest neighbor relative to real images, and the samples that show the difference most."""
    fake, real = distance.embedded(images.fake), distance.embedded(images.real)
    grams = [squared_distances(x[0], x[0]) for x in (fake, real)]
    spreads = [mean_of_pairs(gram) for gram in grams]
    nearest = [float(gram.fill_diagonal_(torch.inf).amin(1).median()) ** 0.5 for gram in grams]
    own = distance.gram(fake, fake).fill_diagonal_(0).sum(1) / (len(fake[0]) - 1)
    witness = own - distance.gram(fake, real).mean(1)
    most = witness.argsort(descending=True)[:SAMPLES].cpu()
    ratios = [a / b if b else float("nan") for a, b in (spreads, nearest)]
    return ratios[0], ratios[1], tuple(images.chosen_fake[most].tolist())


def _from_another(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    chosen = torch.randperm(len(images), generator=generator)[: round(strength * len(images))]
    out = images.clone()
    out[chosen.to(images.device)] = images[chosen.roll(1).to(images.device)]
    return out


def _as_it_is(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    return images


MISFIT = Fault("misfit", "of the images", (0.3, 0.6, 1.0), _from_another)
MODES = Fault("modes", "of the distance", (1.0,), _as_it_is)
