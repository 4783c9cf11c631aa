# SPDX-License-Identifier: Apache-2.0
"""PromptSplit's total where the eigenvalues are too many to compute them all: an estimate with its standard error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from genmonitor.linalg.krylov import Space

SETTLED = 0.01
"""A Krylov space grows until the total has yet to change by no more than this part of it."""

LEAST_BLOCKS = 10
"""Blocks of a Krylov space that tells the total: with fewer it seems settled before the tail of the spectrum shows."""

SEARCHED = 1024
"""Columns of a space that shows no positive eigenvalue before it is believed: a large weight of the reference hides
them among negative ones that are much larger."""

APART = 0.03
"""A Ritz vector whose residual is below this part of the gap to the next Ritz value is an eigenvector.

The angle between them is at most residual over gap, and what an eigenvalue contributes to a sum is off by the square of
that, a thousandth.
"""
CLUSTER = 1e-6
"""Ritz values nearer to each other than this part of the largest stand for as many eigenvalues as probes say.

Rounding alone would separate the copies of a multiple eigenvalue by as much in float32.
"""


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


Function = Callable[[Tensor], Tensor]


def spectral_sums(
    space: Space, functions: Sequence[Function], known: Sequence[tuple[Function, float]] = ()
) -> tuple[Tensor, Tensor]:
    """Estimate Σ f(λ) over the whole spectrum, for functions with f(0) = 0, in a space made by `Space.ends`.

    Eigenvalues whose vectors the space has are summed. The rest is what the probes have of it, Σ f(θ) ⟨ξ, y⟩² over the
    other Ritz pairs θ, y (Hutchinson's method with the deflation of Hutch++ and the quadrature of Lanczos), corrected
    by how far the same probes are off with sums that are known. Probes make no bias; what a space of finite size misses
    of f does, and shows as it grows.

    Args:
        space: its probes must be more than two beyond the sums that are known.
        functions: F of them, of the eigenvalues [b].
        known: other such functions with their sums.

    Returns:
        The sums [F], and the covariance of their errors [F, F] from how much the probes differ.

    References:
        Ubaru, Chen and Saad, "Fast Estimation of tr(f(A)) via Stochastic Lanczos Quadrature", SIAM Journal on Matrix
            Analysis and Applications 38(4), 2017.
        Meyer et al., "Hutch++: Optimal Stochastic Trace Estimation", arXiv 2010.09649.
    """
    values = space.ritz()[0]
    evaluated = torch.stack([function(values) for function in [*functions, *(control for control, _ in known)]])
    apart, f = _apart(space), len(functions)
    summed, each = evaluated[:, apart].sum(1), evaluated[:, ~apart] @ space.shares()[~apart]
    # least squares over the probes, of what is wanted by the errors of what is known: the constant is a mean in which
    # every probe has its part, and these errors cancel
    errors = each[f:] + (summed[f:] - summed.new_tensor([value for _, value in known]))[:, None]
    errors = errors / errors.norm(dim=1, keepdim=True).clamp_min(torch.finfo(errors.dtype).tiny)
    design = torch.cat([torch.ones_like(each[:1]), errors]).T
    inverse = torch.linalg.pinv(design)
    parts = inverse[0]
    left = each[:f] - (design @ (inverse @ each[:f].T)).T
    covariance = left @ left.T / (len(parts) - design.shape[1]) * parts.square().sum()
    return summed[:f] + each[:f] @ parts, covariance


def _apart(space: Space) -> Tensor:
    """Tell which Ritz vectors are eigenvectors: their residual is far below the gap to the next Ritz value."""
    values = space.ritz()[0]
    if not len(values):
        return values > 0
    infinity = values.new_tensor([torch.inf])
    steps = torch.cat([infinity, values.diff(), infinity])
    gaps = torch.minimum(steps[:-1], steps[1:])
    return (space.residuals <= APART * gaps) & (gaps >= CLUSTER * values.abs().max())
