# SPDX-License-Identifier: Apache-2.0
"""PromptSplit's total where the eigenvalues are too many to compute them all: an estimate with its standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from genmonitor.linalg.krylov import Space
from genmonitor.linalg.spectral_sums import spectral_sums

SETTLED = 0.01
"""A Krylov space grows until the total has yet to change by no more than this part of it."""

LEAST_BLOCKS = 10
"""Blocks of a Krylov space that tells the total: with fewer it seems settled before the tail of the spectrum shows."""

SEARCHED = 1024
"""Columns of a space that shows no positive eigenvalue before it is believed: a large weight of the reference hides
them among negative ones that are much larger."""


class TotalEstimate:
    """Estimates the total from a Krylov space that grows, and says when the rest hardly matters.

    Args:
        moments: Σ λ^k over all eigenvalues, from k = 1, as many as are known.
        columns: those of a block of the space.
        patient: whether the space is to grow until the total has settled.

    Attributes:
        total: Σ λ log(S / λ) over the positive eigenvalues, as far as the space tells.
        error: its standard error: of the probes, of what the space lacks, and of rounding.
    """

    total: Tensor
    error: Tensor

    def __init__(self, moments: Sequence[float], columns: int, patient: bool) -> None:
        self._least, self._patient = LEAST_BLOCKS * columns, patient
        self._powers = [(partial(torch.pow, exponent=k), moment) for k, moment in enumerate(moments, 1)]
        self._history: list[tuple[int, Tensor]] = []

    def __call__(self, space: Space) -> bool:
        """Look at the space again; tell whether it is large enough."""
        (mass, product), covariance = spectral_sums(space, [lambda x: x.clamp_min(0), _product_with_log], self._powers)
        if not mass > 0:
            self.total = self.error = torch.zeros_like(mass)
            return space.exhausted or space.vectors.shape[1] >= SEARCHED
        slopes = torch.stack([1 + mass.log(), -torch.ones_like(mass)])
        self.total = mass * mass.log() - product
        lacking = torch.zeros_like(mass) if space.exhausted else self._yet_to_change(space)
        variance = (slopes @ covariance @ slopes).clamp_min(0)
        self.error = (variance + lacking.square() + _rounded_off(slopes[0], space.rounding).square()).sqrt()
        large = space.vectors.shape[1] >= self._least
        return large and (not self._patient or bool(lacking <= SETTLED * self.total))

    def _yet_to_change(self, space: Space) -> Tensor:
        """Return how far the total has yet to move, by how it moved while the space grew to its size from half of it.

        And by what part that is of the change from a quarter to half of it: the changes to come are taken for a
        geometric series. Of the last change a quarter counts at least, and twice that at most.
        """
        size = space.vectors.shape[1]
        self._history.append((size, self.total))
        last, before = self._moved(size / 2, size), self._moved(size / 4, size / 2)
        part = last / before.clamp_min(torch.finfo(before.dtype).tiny)
        return last * (part / (1 - part.clamp_max(2 / 3))).clamp(0.25, 2)

    def _moved(self, since: float, until: float) -> Tensor:
        """Return the largest change of the total between two sizes of the space, from zero where it was smaller."""
        zero = torch.zeros_like(self.total)
        start = next((total for size, total in reversed(self._history) if size <= since), zero)
        return max(((total - start).abs() for size, total in self._history if since < size <= until), default=zero)


def _rounded_off(slope: Tensor, rounding: float) -> Tensor:
    """Return what eigenvalues of the size of rounding's square root may add to the total, or take from it.

    That large they are where directions of which the kernel has as little as rounding cancel those that it has more of.
    """
    return 2 * math.sqrt(rounding) * (slope - math.log(rounding)).clamp_min(1)


def _product_with_log(x: Tensor) -> Tensor:
    return torch.where(x > 0, x * x.clamp_min(torch.finfo(x.dtype).tiny).log(), 0)
