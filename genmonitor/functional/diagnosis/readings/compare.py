# SPDX-License-Identifier: Apache-2.0
"""Comparison of the readings of two sets of images: those that differ, at one level for all, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor.functional.diagnosis.readings.base import Look, Reading
from genmonitor.functional.permutation import NUM_PERMUTATIONS, random_splits


@dataclass(frozen=True, eq=False)
class Said:
    """A reading that differs.

    Attributes:
        reading: Reading that is compared.
        fake, real: Medians of the reading on both sides; the means if the medians are equal.
        share: Part of the generated images that show it, minus that of real ones.
        p: P-value of no difference in any reading.
        order: Indices of the generated images, those that show it most first.
        typical: Indices of the real images, those nearest to its median first.
    """

    reading: Reading
    fake: float
    real: float
    share: float
    p: float
    order: Tensor
    typical: Tensor

    @property
    def size(self) -> float:
        """Visibility: the share times the difference in units of the visible difference, times the weight."""
        # multiple of the visible difference beyond which a larger one is not more visible
        times = min(abs(self.fake - self.real) / self.reading.visible, 8.0)
        return self.reading.weight * self.share * times**0.5

    @property
    def resembles(self) -> str:
        """Kind of fault whose usual cause is a possible one; empty if unknown."""
        return self.reading.resembles[self.fake < self.real]

    def __str__(self) -> str:
        word = self.reading.words[self.fake < self.real]
        return ", ".join(filter(None, [word, self.beside("real")]))

    def beside(self, other: str) -> str:
        """Return the reading with both values, such as "flat pixels 0 %, real 34 % (in 100 % of the images)"."""
        fake, real = self.reading.beside(self.fake, self.real)
        return f"{fake}, {other} {real} (in {100 * self.share:.0f} % of the images)"


def usable_readings(readings: Sequence[Reading], real: Tensor, aligned: bool = True) -> list[Reading]:
    """Return the readings that images [N, C, H, W] have."""
    side, lacking = min(real.shape[2:]), set()
    if real.shape[1] < 3:
        lacking.add("needs_color")
    if not aligned:
        lacking.add("needs_place")
    if not Look(real[:100].float()).on_background:
        lacking.add("needs_background")
    return [x for x in readings if side >= x.least_side and not any(getattr(x, need) for need in lacking)]


def checked_readings(
    readings: Sequence[Reading], real: Tensor, aligned: bool, failures: list[str], skip_failing: bool
) -> list[Reading]:
    """Return the user's readings that apply to the images and give a number for each image.

    Args:
        readings: Readings to compare.
        real: Images [N, C, H, W] in [0, 1], some of which are tried.
        aligned: True if the same places of images can be compared.
        failures: Function that takes a sentence for each reading that is skipped.
        skip_failing: True to skip a reading that fails instead of raising its error.
    """
    for reading in readings:
        if not isinstance(reading, Reading):
            raise TypeError(
                f"Expected `readings` to hold objects of a subclass of Reading, but got {reading!r}. See "
                "genmonitor.functional.diagnosis.readings.Reading."
            )
    kept = []
    look = Look(real[:8])
    for reading in usable_readings(readings, real, aligned):
        try:
            _check_numbers(reading, reading.of(look), len(look.images))
            kept.append(reading)
        except Exception as error:
            if not skip_failing:
                raise
            failures.append(f"the reading {reading.name!r} failed: {type(error).__name__}: {error}")
    return kept


def _check_numbers(reading: Reading, numbers: object, count: int) -> None:
    """Refuse results that are not a finite number for each image."""
    if not isinstance(numbers, Tensor) or numbers.shape != (count,) or not bool(numbers.isfinite().all()):
        got = f"shape {list(numbers.shape)}" if isinstance(numbers, Tensor) else type(numbers).__name__
        raise ValueError(
            f"Expected the reading {reading.name!r} to return a finite number for each image, [{count}], but got {got}."
        )


def read(readings: Sequence[Reading], images: Tensor) -> Tensor:
    """Return the readings of images, float64 [N, R]."""
    look = Look(images)
    if not readings:  # of single pixels
        return torch.empty(len(images), 0, dtype=torch.float64)
    return torch.stack([x.of(look).double().cpu() for x in readings], 1)


def standardized_difference(fake: Tensor, real: Tensor) -> Tensor:
    """Return the standardized difference of ranks [R] of generated [N, R] and real [M, R] readings.

    Example:
        >>> ranks = torch.arange(100.0)[:, None]
        >>> standardized_difference(ranks + 50, ranks)
        tensor([9.1629], dtype=torch.float64)
    """
    n, m = len(fake), len(real)
    ranks = _ranks(torch.cat([fake, real]))
    ranks = ranks - ranks.mean(0)
    return ranks[:n].mean(0) / (ranks.square().mean(0) * m / (n * (n + m - 1))).sqrt().clamp_min(1e-12)


def p_values(fake: Tensor, real: Tensor, seed: int) -> Tensor:
    """Test each reading by its ranks, at one level for all (maxT, Westfall and Young 1993).

    Args:
        fake: Readings of generated images [N, R].
        real: Readings of real images [M, R].
        seed: Seed of the permutations.

    Returns:
        P-values [R].
    """
    n, both = len(fake), torch.cat([fake, real])
    ranks = _ranks(both)
    ranks = (ranks - ranks.mean(0)) / ranks.std(0).clamp_min(1e-12)
    sizes = (random_splits(len(both), n, NUM_PERMUTATIONS, seed).double() @ ranks).abs()
    return (sizes.amax(1)[:, None] >= sizes[0] - 1e-9).double().mean(0)


def differing(readings: Sequence[Reading], fake: Tensor, real: Tensor, level: float, seed: int) -> list[Said]:
    """Return the readings that differ most visibly, at most three, without redundant ones.

    Args:
        readings: Readings to compare.
        fake: Readings of generated images [N, R].
        real: Readings of real images [M, R].
        level: Level of all readings together.
        seed: Seed of the permutations.
    """
    p = p_values(fake, real, seed)
    found = [_said(x, fake[:, i], real[:, i], float(p[i])) for i, x in enumerate(readings) if p[i] <= level]
    # a difference is reported if 15 % of the images show it
    found = [x for x in found if x.share >= 0.15 and abs(x.fake - x.real) >= x.reading.visible]
    found = [x for x in found if x.reading.only in ("", "more" if x.fake > x.real else "less")]
    within = torch.cat([_ranks(x) - (len(x) + 1) / 2 for x in (fake, real)])
    alike = (within.T @ within) / within.norm(dim=0).clamp_min(1e-12).outer(within.norm(dim=0).clamp_min(1e-12))
    index = {id(x): i for i, x in enumerate(readings)}
    out: list[Said] = []
    for candidate in sorted(found, key=lambda x: -x.size):
        # rank correlation within both sets from which two readings are redundant
        same = [x for x in out if abs(float(alike[index[id(x.reading)], index[id(candidate.reading)]])) >= 0.6]
        family = [x for x in out if x.reading.family == candidate.reading.family]
        # at most two readings of a family are reported
        if not same and len(family) < 2:
            out.append(candidate)
    return out[:3]


def _said(reading: Reading, fake: Tensor, real: Tensor, p: float) -> Said:
    share, sign = _excess(fake, real)
    middle = [float(x.median()) for x in (fake, real)]
    if abs(middle[0] - middle[1]) < reading.visible:
        middle = [float(x.mean()) for x in (fake, real)]
    order, typical = (sign * fake).argsort(descending=True), (real - real.median()).abs().argsort()
    return Said(reading, middle[0], middle[1], share, p, order, typical)


def _excess(fake: Tensor, real: Tensor) -> tuple[float, int]:
    """Return the part of the generated values beyond the real ones (Kolmogorov-Smirnov), and the side."""
    values = torch.cat([fake, real]).sort().values
    below = [torch.searchsorted(x.sort().values, values, right=True) / len(x) for x in (fake, real)]
    gap = below[1] - below[0]
    return float(gap.abs().max()), 1 if float(gap[gap.abs().argmax()]) > 0 else -1


def _ranks(values: Tensor) -> Tensor:
    """Return ranks within each column, float64 [N, R]; ties have their mean rank."""
    from scipy.stats import rankdata

    return torch.from_numpy(rankdata(values.numpy(), axis=0))
