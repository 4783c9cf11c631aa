# SPDX-License-Identifier: Apache-2.0
"""Search for the faults that bring real images closest to generated ones, and their shares of the distance.

Strengths are fitted on one half of the images and judged on the other, so that trying more models or strengths explains
nothing by itself (Kulinski and Inouye's share explained). Several faults divide the share by Shapley values, the mean
contribution of each over all orders of adding them. The search begins with few images, chosen so that their mean is
close to that of all (Chen, Welling and Smola, "Super-Samples from Kernel Herding", UAI 2010). In an equally small
random choice, an overrepresented class would outweigh a fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, permutations, product
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.distance import Distance, distance_of
from genmonitor.functional.diagnosis.kinds import FAULT_MODELS, FaultModel, Kind, Models

ALL, FEW = 10**6, 6
"""Numbers of single faults to refine, and of those added to others, with every second strength to begin with."""
LEVELS = ((48, ALL, ()), (112, 7, (1.41, 1.41, 1.19)), (ALL, 3, (1.09, 1.03)))
"""Levels of the search: images a side, number of candidates to keep, and factors to refine strengths by."""
ADDS = 0.1
"""Share that a further fault must explain."""
TOGETHER = 2**20
"""Numbers of changed images, or of their kernel, that are computed together: 4 MiB."""
CHANCE = 3.0
"""Distance below which only chance is left to explain."""


class PutFault(NamedTuple):
    """A fault model with a strength."""

    model: FaultModel
    strength: float


Faults = tuple[PutFault, ...]
Ranked = list[tuple[float, Faults]]
"""Faults, each with the distance that it leaves, the best first."""


@dataclass(frozen=True, eq=False)
class Side:
    """Half of the images: real ones to put faults into and generated ones to compare with, the most typical first.

    Attributes:
        real: Real images [N, C, H, W], scaled as fault models expect them.
        area: Boolean mask [H, W] of the pixels that get the faults.
        low, high: Range of generated and real images, to which faults are clipped.
        offset: Offset that makes the distances of the first images about those of all images.
    """

    distance: Distance
    real: Tensor
    fake: list[Tensor]
    fake_gram: Tensor
    area: Tensor
    low: float
    high: float
    seed: int
    offset: float = 0.0
    _left: dict[tuple[tuple[int, float], ...], tuple[float, Faults]] = field(default_factory=dict, init=False)

    @classmethod
    def of(
        cls, distance: Distance, real: Tensor, fake: Tensor, area: Tensor, bounds: tuple[float, float], seed: int
    ) -> Side:
        """Embed the generated images, and order both sides."""
        embedded = [distance.embedded(x) for x in (real, fake)]
        orders = [_typical_first(distance.gram(x, x)) for x in embedded]
        typical = [x[orders[1]] for x in embedded[1]]
        gram = distance.gram(typical, typical)
        return cls(distance, real[orders[0]], typical, gram, area.to(real.device), *bounds, seed)

    def first(self, count: int) -> Side:
        """Return the side of the first images alone."""
        if count >= max(len(self.real), len(self.fake_gram)):
            return self
        fake, gram = [x[:count] for x in self.fake], self.fake_gram[:count, :count]
        few = replace(self, real=self.real[:count], fake=fake, fake_gram=gram)
        return replace(few, offset=self.offset + self.left(()) - few.left(()))

    def put(self, faults: Faults) -> Tensor:
        """Return the real images with faults in the area."""
        return put_faults(self.real, faults, self.area, (self.low, self.high), self.seed)

    def left(self, faults: Faults) -> float:
        """Return the distance of generated images from real ones with faults."""
        return self.left_of_each([faults])[0]

    def left_of_each(self, several: Sequence[Faults]) -> list[float]:
        """Return the distances of generated images from real ones with faults, for each of several."""
        # a user's model may not be hashable
        keys = [tuple((id(model), strength) for model, strength in faults) for faults in several]
        new = {key: faults for key, faults in zip(keys, several, strict=True) if key not in self._left}
        found = self.left_by(map(self.put, new.values()))
        # with the models, which keeps them and their ids alive
        self._left.update((key, (left, new[key])) for key, left in zip(new, found, strict=True))
        return [self._left[key][0] for key in keys]

    def left_by(self, changed: Iterable[Tensor]) -> list[float]:
        """Return the distances of generated images from changed real ones, for each change.

        Several changes are processed together, since for small images starting an operation takes longest.
        """
        n, fakes = len(self.real), len(self.fake_gram)
        count = max(1, TOGETHER // (n * max(self.real[0].numel(), n + fakes)))
        changed = iter(changed)
        return [left for first in changed for left in self._left_by_these([first, *islice(changed, count - 1)])]

    def _left_by_these(self, changed: list[Tensor]) -> list[float]:
        x = self.distance.embedded(torch.cat(changed) if len(changed) > 1 else changed[0])
        x = [view.unflatten(0, (-1, len(self.real))) for view in x]
        changed.clear()  # large ones are not kept while their distances are computed
        grams = self.distance.gram(x, x), self.distance.gram(x, self.fake)
        return (self.offset + distance_of(*grams, self.fake_gram)).tolist()


def _typical_first(gram: Tensor) -> Tensor:
    """Return an order of samples with Gram matrix [N, N] in which the mean of the first is near that of all."""
    gram = gram.double()
    mean, taken, left = gram.mean(1), torch.zeros_like(gram[0]), torch.zeros_like(gram[0])
    order = []
    for count in range(1, len(gram) + 1):
        order.append((count * mean - taken + left).argmax())
        taken += gram[order[-1]]
        left[order[-1]] = -torch.inf
    return torch.stack(order)


def put_faults(real: Tensor, faults: Faults, area: Tensor, bounds: tuple[float, float], seed: int) -> Tensor:
    """Put faults into an area [H, W] of real images, scaled as fault models expect them."""
    images = real
    for number, (model, strength) in enumerate(faults):
        generator = torch.Generator().manual_seed(seed + number)
        images = checked(model, model.apply(images, strength, generator), real)
    return torch.where(area, images.clamp(*bounds), real)


def checked(model: FaultModel, images: object, real: Tensor) -> Tensor:
    """Refuse invalid results of a fault model."""
    if not isinstance(images, Tensor) or images.shape != real.shape:
        got = list(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(
            f"Expected `apply` of the fault model {model.name!r} to return images of shape {list(real.shape)}, as it "
            f"was given, but got {got}."
        )
    if not bool(images.sum().isfinite()):
        raise ValueError(
            f"Expected `apply` of the fault model {model.name!r} to return finite images, but got NaN or infinities. "
            "Check its strengths, or leave it out."
        )
    return images.to(real)


def more(side: Side, models: Models, starts: Sequence[Faults]) -> Iterator[Faults]:
    """Yield the best pair of faults, then the best three.

    Two faults may hide each other, so that neither is the best alone; noise hides most.

    Args:
        side: Half of the images to fit on.
        models: Fault models to try.
        starts: Single faults, the best first.
    """
    hiding = [x for x in models if getattr(x, "hides", False)]
    noises: list[Faults] = [(PutFault(x, s),) for x in hiding for s in x.strengths if 0.02 < s < 0.2]
    names = {start[0].model.name: start for start in reversed(starts)}  # the best of each
    # others are added to the best three single faults, and to noise
    starts = [x for x in starts if names[x[0].model.name] is x][:3] + noises
    while starts and len(starts[0]) < 3:
        found = _search(side, starts, models, FEW)
        if not found:
            return
        yield found[0][1]
        starts = [found[0][1]]


def ranked(side: Side, models: Models) -> Ranked:
    """Return single faults, each with the distance that it leaves, the best first."""
    return _search(side, [()], models, ALL)


def _search(side: Side, starts: Sequence[Faults], models: Models, most: int) -> Ranked:
    """Add one fault to each of the starts; return the results with their distances, the best first.

    Args:
        side: Half of the images to fit on.
        starts: Faults that are already put.
        models: Candidate models of the fault to add.
        most: Largest number of candidates to refine.
    """
    order = {id(model): number for number, model in enumerate(models)}
    tried = [
        tuple(sorted((*start, PutFault(model, strength)), key=lambda put: order[id(put.model)]))
        for start in starts
        for model in models
        if all(put.model is not model for put in start)
        for strength in _some(model)
    ]
    found = [(0.0, faults) for faults in tried]
    for number, (count, stay, steps) in enumerate(LEVELS):
        some, stay = side.first(count), min(stay, most) if number else stay
        keep = stay if most == ALL or not steps else max(1, stay // 3)  # of pairs only the best is used
        refined = sorted(_refined(some, [faults for _, faults in found[:stay]], steps, keep), key=lambda x: x[0])
        best: dict[tuple[int, ...], tuple[float, Faults]] = {}
        for distance, faults in refined:
            best.setdefault(tuple(id(put.model) for put in faults), (distance, faults))
        found = [*best.values(), *found[stay:]]
    return found


def _some(model: FaultModel) -> list[float]:
    """Return every second strength of a model by size, so that both signs occur; all of them if they are integers.

    A shift by one pixel does not show in a shift by two.
    """
    if getattr(model, "whole", False):
        return list(model.strengths)
    sizes = sorted({abs(s) for s in model.strengths})[1::2] or [abs(s) for s in model.strengths]
    return [s for s in model.strengths if abs(s) in sizes]


def _refined(side: Side, several: Sequence[Faults], steps: Iterable[float], keep: int) -> Ranked:
    """Improve the strengths of the best of several candidates one after the other, by decreasing factors."""
    best = sorted(zip(side.left_of_each(several), several, strict=True), key=lambda x: x[0])[:keep]
    for step, place in product(steps, range(max(map(len, several), default=0))):
        tried = [
            (number, (*faults[:place], PutFault(faults[place].model, other), *faults[place + 1 :]))
            for number, (_, faults) in enumerate(best)
            for other in (_beside(*faults[place], step) if place < len(faults) else ())
        ]
        for (number, faults), left in zip(tried, side.left_of_each([faults for _, faults in tried]), strict=True):
            best[number] = min(best[number], (left, faults), key=lambda x: x[0])
    return best


def _beside(model: FaultModel, strength: float, step: float) -> Iterable[float]:
    low, high = getattr(model, "bounds", (-math.inf, math.inf))
    if not getattr(model, "whole", False):
        return [min(max(x, low), high) for x in (strength / step, strength * step)]
    return [x for x in (strength - 1, strength + 1) if x and low <= x <= high] if step > 1.4 else ()


def shares(side: Side, faults: Faults) -> list[float]:
    """Return the part of the distance that each fault explains; the parts sum to what all explain together."""
    nothing = side.left(())

    def together(chosen: Sequence[int]) -> float:
        share = 1 - side.left(tuple(faults[i] for i in sorted(chosen))) / nothing if chosen else 0.0
        # a fault that alone increases the distance, such as blur if there is noise too, explains nothing alone
        return share if len(chosen) == len(faults) else max(share, 0.0)

    orders = list(permutations(range(len(faults))))
    out = [0.0] * len(faults)
    for order in orders:
        for position, i in enumerate(order):
            out[i] += (together(order[: position + 1]) - together(order[:position])) / len(orders)
    return out


def closer(side: Side, faults: Faults) -> float:
    """Return the p-value that real images with faults are no closer to the generated ones than without.

    This is the relative similarity test with the kernel of the distance; sample i of both sets is one real image.
    """
    plain, put = (side.distance.embedded(x) for x in (side.real, side.put(faults)))
    within = [side.distance.gram(x, x).double().fill_diagonal_(0).sum(1) / (len(x[0]) - 1) for x in (plain, put)]
    across = [side.distance.gram(x, side.fake).double() for x in (plain, put)]
    of_real = 2 * (within[0] - within[1]) - 2 * (across[0] - across[1]).mean(1)
    of_fake = -2 * (across[0] - across[1]).mean(0)
    difference = float((within[0] - within[1]).mean() + of_fake.mean())
    error = math.sqrt(float(of_real.var() / len(of_real) + of_fake.var() / len(of_fake)))
    return 0.5 * math.erfc(difference / (error * math.sqrt(2))) if error else 1.0


def usable(models: Models, side: Side, fake: Tensor) -> list[FaultModel]:
    """Return the models that apply to these images, with what they measure."""
    made = [model.measured(fake, side.real, side.area) if isinstance(model, Kind) else model for model in models]
    return [model for model in made if model is not None]


def working(models: Models, fake: Tensor, real: Tensor, failures: list[str], skip_failing: bool) -> list[FaultModel]:
    """Return the models without those of a user that fail at one of their strengths on a few real images.

    Args:
        models: Fault models; those of the package are not tried.
        fake: Generated images [N, C, H, W], scaled as fault models expect them.
        real: Real images [M, C, H, W], likewise.
        failures: List that failures are added to, in sentences.
        skip_failing: True to leave models that fail out instead of raising their errors.
    """
    out: list[FaultModel] = []
    few, everywhere = real[:4], torch.ones(real.shape[2:], dtype=torch.bool)
    for model in models:
        try:
            if not any(model is x for x in FAULT_MODELS):
                measured = model.measured(fake, real, everywhere) if isinstance(model, Kind) else None
                for strength in (measured or model).strengths:
                    checked(model, (measured or model).apply(few, strength, torch.Generator().manual_seed(0)), few)
            out.append(model)
        except Exception as error:
            if not skip_failing:
                raise
            failures.append(f"the fault model {model.name!r} failed: {type(error).__name__}: {error}")
    return out
