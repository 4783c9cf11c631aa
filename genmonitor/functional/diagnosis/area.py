# SPDX-License-Identifier: Apache-2.0
"""All that is measured of one area: how far it is off, what explains that, how varied it is, which samples show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
SURE, CLEAR = LEVEL / 5, 20.0
"""Largest p-value, and least distance, at which proportions are named."""
NEAR = 0.5
"""Part of the usual distance to the nearest image below which an image counts as a copy."""
EDGE, LEAST, KEPT = 2, 12, 0.25
"""Pixels that an area of the map may be too large by, fewest pixels without them, and least part of the area."""
SEARCHED = 112
"""Images a side that say where in an area of the map the fault is."""
MOVES, TRIED = 8, 3
"""Times that a side of such an area may move by a pixel, and areas of which that is tried."""
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
    p_map: Tensor | None = None,
) -> AreaDiagnosis:
    """Measure an area of images.

    Args:
        images: of both sides.
        mask: bool [H, W], true somewhere.
        models: to try.
        image: distance of the whole image, for `of_image`; None where the area is all of it.
        skip_failing: leave out fault models that fail, rather than to raise their error.
        p_map: p-values of the map [H, W] that found the area, which hold of it then. Such areas are larger than the
            fault by a pixel or two, or have its edge alone: what they hold says where the fault is, and that is
            measured instead.
    """
    failures: list[str] = []
    by_map = p_map is not None
    p = _permutation_p(images, mask) if p_map is None else float(p_map[mask].min())
    if p_map is not None:
        mask = _located(images, mask, (p_map <= LEVEL) | _grown(mask, 1), models, skip_failing)
    fitted, judged = _sides(images, within(mask)[: 1 + by_map][-1])
    explained, share, weights, of_image = None, 0.0, None, 0.0
    usable = _usable(models, fitted, images.halves[0][0], failures, skip_failing)
    if p <= LEVEL and judged.left(()) > 0:
        if bool(mask.all()):  # whole images are in wrong proportions; weights fit a part of them to nearly anything
            share, weights = _matched(images, fitted, judged, ())
        explained = _explained(fitted, judged, usable, share, p)
        if weights is not None:
            # weights explain nearly all of what is chance
            share = 0.0 if p > SURE or judged.left(()) < CLEAR else share
            share, weights, explained = _divided(images, fitted, judged, explained, share, weights)
    if not bool(mask.all()) and not (explained and explained.named and explained.share >= MOSTLY):
        mask, explained, p = _by_surroundings(images, mask, [*usable, MISFIT], explained, p, fixed=not by_map)
    if explained and explained.named:
        of_image = explained.share if image is None else _share_of_image(image, images, mask, explained.faults)
    spread, nearest, samples = _variety(judged.distance, images)
    return AreaDiagnosis(
        mask, judged.left(()), p, explained, share, weights, spread, nearest, samples, of_image, tuple(failures)
    )


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
        smaller = _grown(out[-1], -1)
        if float(smaller.sum()) < max(LEAST, KEPT * float(mask.sum())):
            break
        out.append(smaller)
    return out


def _sides(images: Images, area: Tensor) -> tuple[Side, Side]:
    """Return the half to fit on and the half to judge on, with the distance in an area."""
    (fake_a, real_a), (fake_b, real_b) = images.halves
    distance = Distance.of(real_a, area, min(len(fake_b), len(real_b)))
    return (
        Side.of(distance, real_a, fake_a, area, images.range, images.seed),
        Side.of(distance, real_b, fake_b, area, images.range, images.seed + 1),
    )


def _by_surroundings(
    images: Images, mask: Tensor, models: Sequence[FaultModel], explained: Explained | None, p: float, fixed: bool
) -> tuple[Tensor, Explained | None, float]:
    """Return instead, where that explains more, which fault of the area does with what is around it.

    An area that was drawn from another image is right by itself, and that it is brighter may show at its edge alone:
    then the map has the edge, and what it goes round is tried as well.

    Args:
        images: of both sides.
        mask: of the area.
        models: to try.
        explained: what was found within.
        p: of no difference within.
        fixed: whether the area must stay as it is.
    """
    areas = [mask] if fixed else _unlike([x for area in (mask, _box(mask)) for x in (area, within(area)[-1])])
    around = _grown(mask if fixed else _box(mask), REACH)
    fitted, judged = _sides(images, around)
    p_around = _permutation_p(images, around) if fixed else p
    if judged.left(()) <= CHANCE or p_around > SURE:
        return mask, explained, p
    some = fitted.first(SEARCHED)
    ways = [(some.put_into(area), next(fit(some.put_into(area), models))) for area in areas]
    ways = sorted(ways, key=lambda x: x[0].left(x[1]))[:TRIED]
    moved = [(x.area.cpu() if fixed else _moved_to_fit(some, [x.area.cpu()], faults), faults) for x, faults in ways]
    area, faults = min(moved, key=lambda x: some.put_into(x[0]).left(x[1]))
    faults = next(fit(fitted.put_into(area), [fault.model for fault in faults]))
    share = shares(judged.put_into(area), faults)[0]
    within_area = explained.share + ADDS if explained else 0.0
    if share < max(NAMED, within_area) or closer(judged.put_into(area), faults) > LEVEL:
        return mask, explained, p
    return area, Explained(faults, (share,), True), p_around


def _located(
    images: Images, mask: Tensor, significant: Tensor, models: Sequence[FaultModel | Measured], skip_failing: bool
) -> Tensor:
    """Return where the fault is that explains most of what is within an area of the map, or around it.

    It is there where real images with it are closest to generated ones, seen with what is around: the area where that
    holds pixel by pixel, or the map's, moved at its sides while that brings them closer. Pixels beside a fault that are
    the same in all real images stand out more than it does, so the fault may be around the area.
    """
    fake, _ = images.halves[0]
    best: tuple[float, Faults] = NAMED, ()
    for area in _unlike([within(mask)[-1], _grown(mask, REACH) & significant]):
        side = _sides(images, area)[0].first(SEARCHED)
        faults = next(fit(side, _usable(models, side, fake, [], skip_failing)), ())
        share = 1 - side.left(faults) / max(side.left(()), CHANCE)
        best = max(best, (share, faults), key=lambda x: x[0])
        if best[0] >= MOSTLY:
            break
    if not best[1]:
        return mask
    around = _sides(images, _grown(significant, REACH))[0].first(SEARCHED)
    return _moved_to_fit(around, [mask, _by_pixel(images, mask, significant, best[1])], best[1])


def _moved_to_fit(side: Side, areas: Sequence[Tensor], faults: Faults) -> Tensor:
    """Return the area in which faults bring real images closest, with its sides moved while that brings them closer."""

    def best(some: Sequence[Tensor]) -> tuple[float, Tensor]:
        return min(((side.put_into(area).left(faults), area) for area in some), key=lambda x: x[0])

    left, area = best(areas)
    for _ in range(MOVES):
        after, moved = best([x for x in _moved(area) if bool(x.any())])
        if after >= left:
            break
        left, area = after, moved
    return area


def _moved(area: Tensor) -> list[Tensor]:
    """Return an area with each of its sides moved out and in by a pixel."""
    padded = F.pad(area[None].float(), (1, 1, 1, 1), "replicate")[0].bool()
    height, width = area.shape
    beside = [padded[y : y + height, x : x + width] for y, x in ((0, 1), (2, 1), (1, 0), (1, 2))]
    return [area | x for x in beside] + [area & x for x in beside]


def _grown(mask: Tensor, pixels: int) -> Tensor:
    """Return a mask [H, W] that is larger by so many pixels, or smaller by as many if they are negative."""
    if pixels < 0:
        return ~_grown(~mask, -pixels)
    return F.max_pool2d(mask[None].float(), 2 * pixels + 1, 1, pixels)[0] > 0


def _box(mask: Tensor) -> Tensor:
    """Return the smallest rectangle that holds a mask [H, W]."""
    out = torch.zeros_like(mask)
    rows, columns = (slice(int(x.min()), int(x.max()) + 1) for x in mask.nonzero(as_tuple=True))
    out[rows, columns] = True
    return out


def _unlike(masks: Sequence[Tensor]) -> list[Tensor]:
    """Return masks [H, W] without repetitions, and without one that is all of the image."""
    out: list[Tensor] = []
    for mask in masks:
        if not bool(mask.all()) and not any(torch.equal(mask, x) for x in out):
            out.append(mask)
    return out


def _by_pixel(images: Images, mask: Tensor, significant: Tensor, faults: Faults) -> Tensor:
    """Return where, of what is significant, generated images are closer to real ones with faults than without.

    Pixel by pixel, by the means of their characteristic functions, in both views.
    """
    fake, real = images.halves[0]
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
    found = (F.avg_pool2d(gain[None], 3, 1, 1)[0] > 0).cpu() & significant
    return largest_piece(found) if found.sum() >= KEPT * mask.sum() else mask


def _share_of_image(image: Distance, images: Images, mask: Tensor, faults: Faults) -> float:
    """Return what faults of an area explain of the whole image's distance."""
    fake, real = images.halves[1]
    whole = Side.of(image, real, fake, mask, images.range, images.seed + 1)
    return max(0.0, 1 - whole.left(faults) / max(whole.left(()), CHANCE))


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


def _permutation_p(images: Images, area: Tensor) -> float:
    """Test no difference of an area by all images; the kernel is that of both sides together, so the level is exact."""
    n, m = len(images.fake), len(images.real)
    pool = torch.cat([images.fake, images.real])
    distance = Distance.of(pool, area, min(n, m))
    values = distance.embedded(pool)
    gram = distance.gram(values, values).double().fill_diagonal_(0)
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
