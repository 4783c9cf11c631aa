# SPDX-License-Identifier: Apache-2.0
"""Faults that explain an area: shares of the distance propose them, and readings decide between equal shares.

Anything that brings two sets closer has a share, so a share alone does not identify a kind. A fault that makes more
readings of real images wrong than before is rejected. Of two faults with equal shares, the one that leaves fewer
readings wrong is named. If they leave equally many, both are reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.fit import ADDS, CHANCE, Faults, Side, closer, more, put_faults, ranked, shares
from genmonitor.functional.diagnosis.images import Images
from genmonitor.functional.diagnosis.kinds import Kind, Models
from genmonitor.functional.diagnosis.readings import Reading, read, usable_readings
from genmonitor.functional.diagnosis.readings.compare import standardized_difference
from genmonitor.functional.permutation import LEVEL
from genmonitor.linalg.whitening import slices_of

IDENTIFIED, IN_PLACE, NEARLY_ALL = 0.5, 0.9, 0.95
"""Share that faults must explain to be the cause and not only the nearest kind: of whole images, and of an area, whose
few readings hardly rule a kind out. The last is for both, if something else is visible.
"""
SURE = LEVEL / 5
"""Largest p-value at which half of the distance suffices for a name, without a relative similarity test."""
NEAR = 0.1
"""Part of the distance by which a kind may explain less than another to be compared by readings; half of it to be named
with it.
"""


@dataclass(frozen=True, eq=False)
class Explained:
    """Faults that explain part of a distance.

    Attributes:
        faults: Faults in the order in which they are put into an image.
        shares: Share that each explains; they add up to at most 1.
        leaves: Number of readings that remain or become visibly wrong.
        near: True if they make at least half of the wrong readings right, and none wrong in another direction.
        named: True if they explain enough, beyond chance, to be named as the cause and not only as the nearest kind.
        rivals: Single faults that explain equally much and leave equally many readings wrong.
        needed: Share that they must explain to be the cause if nothing else is visible.
    """

    faults: Faults
    shares: tuple[float, ...]
    leaves: int = 0
    near: bool = False
    named: bool = False
    rivals: tuple[Faults, ...] = ()
    needed: float = IDENTIFIED

    @property
    def share(self) -> float:
        """Share that the faults explain together."""
        return sum(self.shares)

    @property
    def identified(self) -> bool:
        """True if the faults are the cause, not only the nearest kind."""
        needed = NEARLY_ALL if self.leaves else self.needed
        return self.named and self.share >= needed and (self.near or not self.leaves)


ReadSides = tuple[Sequence[Reading], Tensor, Tensor]
"""Readings that the bounding rectangle of an area has, and their values [N, R] on the generated and the real side."""


def read_sides(images: Images, mask: Tensor) -> ReadSides:
    """Read both sides of an area."""
    sides = [x[..., *slices_of(mask)] for x in (images.fake, images.real)]
    readings = usable_readings(images.readings, sides[1])
    return readings, read(readings, sides[0]), read(readings, sides[1])


def arbiter_of(images: Images, mask: Tensor, sides: ReadSides) -> Callable[[Faults], Tensor]:
    """Return a function that tells the visibly wrong readings of an area once faults are put into real images.

    Its result [R] is the direction in which generated images differ, 1 or -1, and 0 for a reading that is right.
    """
    readings, fake, plain = sides
    if not readings:
        return lambda faults: torch.zeros(0)
    visible = torch.tensor([x.visible for x in readings])

    def wrong(faults: Faults) -> Tensor:
        put = put_faults(images.real, faults, mask.to(images.real.device), images.range, images.seed)
        real = read(readings, put[..., *slices_of(mask)]) if faults else plain
        # beyond 4 standard deviations, one in 400 sets has a wrong one of 35 readings by chance
        differs = standardized_difference(fake, real).abs() > 4.0
        difference = fake.mean(0) - real.mean(0)
        return difference.sign() * (differs & (difference.abs() >= visible))

    return wrong


def explained(
    fitted: Side, judged: Side, models: Models, wrong: Callable[[Faults], Tensor], p: float
) -> Explained | None:
    """Return the faults that explain the most, fitted on one half of the images and judged on the other.

    Args:
        fitted: Half of the images to fit strengths on.
        judged: Half of the images to judge on.
        models: Fault models to try.
        wrong: Function that tells wrong readings, see `arbiter_of`.
        p: P-value of no difference.

    Returns:
        The faults, as many as improve the explanation; None if no fault brings real images closer.
    """
    singles = ranked(fitted, models)
    if not singles:
        return None
    wrong_before = wrong(())
    before = int(wrong_before.count_nonzero())

    def of(faults: Faults) -> Explained:
        after = wrong(faults)
        leaves, new = int(after.count_nonzero()), bool((after * (after - wrong_before)).any())
        return Explained(faults, _capped(shares(judged, faults)), leaves, not new and leaves <= before / 2)

    tried = [of(faults) for faults in _near(fitted, singles)]
    allowed = [x for x in tried if x.leaves <= before]
    near = [x for x in allowed or tried if x.share >= max(y.share for y in allowed or tried) - NEAR]
    best = min(near, key=lambda x: (x.leaves, _simplicity(fitted, x, near), -x.share))
    rivals = [x for x in near if x is not best and x.leaves <= best.leaves and abs(x.share - best.share) <= NEAR / 2]
    vetoed = not allowed
    left_to_see = best.leaves or best.share < 1 - ADDS
    for faults in more(fitted, models, [x for _, x in singles]) if left_to_see else ():
        together = of(faults)
        if together.leaves > before or not _better(together, best, judged):
            break
        best, rivals, vetoed = together, [], False
    # the test has little power for a small distance, though half of it is explained on images not used for fitting
    enough = best.share >= (IDENTIFIED if p <= SURE else math.inf) or closer(judged, best.faults) <= LEVEL
    named = best.share >= 0.2 and enough and not vetoed
    # the edge of an area is inexact, which affects readings of its rectangle: some must become right
    everywhere = bool(fitted.area.all())
    leaves = best.leaves if everywhere or best.leaves >= before else 0
    needed = IDENTIFIED if everywhere else IN_PLACE
    return replace(best, leaves=leaves, named=named, rivals=tuple(x.faults for x in rivals), needed=needed)


def _near(side: Side, singles: Sequence[tuple[float, Faults]]) -> list[Faults]:
    """Return single faults of different names that explain nearly as much as the best."""
    limit = singles[0][0] + NEAR * max(side.left(()), CHANCE)
    by_name: dict[tuple[str, bool], Faults] = {}
    for left, faults in singles:
        if left <= limit:
            by_name.setdefault((faults[0].model.name, faults[0].strength > 0), faults)
    return [*by_name.values()][:4]


def _simplicity(side: Side, candidate: Explained, among: Sequence[Explained]) -> int:
    """Return the simplicity rank of a single fault among those as close as the best: on black, clipping brightens."""
    nothing, best = max(side.left(()), CHANCE), min(side.left(x.faults) for x in among)
    # further part of the distance that a simpler fault may leave and still be named, if chance explains it
    close = side.left(candidate.faults) <= best + min(0.04 * nothing, 2 * CHANCE + max(best, 0.0) / 2)
    return getattr(candidate.faults[0].model, "simplicity", Kind.simplicity) if close else Kind.simplicity + 1


def _better(together: Explained, best: Explained, judged: Side) -> bool:
    """Return True if more faults explain a tenth of the whole more, or half of the rest and of the wrong readings."""
    gained = together.share - best.share
    rest = (1 - best.share) * judged.left(())
    of_rest = rest > 2 * CHANCE and gained * judged.left(()) >= rest / 2 and together.leaves < best.leaves
    return (gained >= ADDS and min(together.shares) >= ADDS) or of_rest


def _capped(parts: Sequence[float]) -> tuple[float, ...]:
    """Return shares that add up to at most 1; the excess is chance."""
    return tuple(part / max(1.0, sum(parts)) for part in parts)
