# SPDX-License-Identifier: Apache-2.0
"""The Gaussian kernel, and its sigma by the gap of the largest eigenvalues, beside the median heuristic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from genmonitor._validation import check_features, check_min_samples, check_positive
from genmonitor.kernels.base import MEDIAN_SAMPLES, Kernel
from genmonitor.linalg.distances import centered, holds_distances, squared_distances
from genmonitor.linalg.precision import full_precision

STEPS = 8
"""Halvings of the range of sigma, from 1/32 to 32 times the median's on a log scale: 3 % of sigma are left."""


@dataclass(frozen=True)
class GaussianKernel(Kernel):
    """The Gaussian kernel exp(-gamma ‖x - y‖²).

    Args:
        gamma: positive; None takes one over the median squared distance of the data at hand, once.

    Example:
        >>> GaussianKernel(gamma=0.5)(torch.zeros(1, 2), torch.ones(1, 2))
        tensor([[0.3679]])
        >>> GaussianKernel.from_sigma(2.0)
        GaussianKernel(gamma=0.125)
    """

    exponential: ClassVar[bool] = True
    sums_over_sites: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    explicit_features: ClassVar[Literal["exact", "random"] | None] = "random"
    has_taylor_features: ClassVar[bool] = True

    @classmethod
    def from_sigma(cls, sigma: float) -> GaussianKernel:
        """Make exp(-‖x - y‖² / (2 sigma²)), that is gamma = 1 / (2 sigma²)."""
        return cls(gamma=1 / (2 * check_positive("sigma", sigma) ** 2))

    @property
    def unit(self) -> float | None:
        """The root of gamma: squared distances grow with the square of samples."""
        return math.sqrt(self.resolved_gamma)

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Return squared Euclidean distances [N, M]."""
        return squared_distances(x, y, self.gamma)

    def prepared(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return both sets near zero, in float64 where their own dtype loses distances."""
        return centered(x, y, self.gamma)

    def holds(self, x: Tensor) -> bool:
        """Tell whether samples near zero [N, D] are of a dtype in which their kernel loses nothing."""
        return holds_distances(x, self.gamma)

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of `prepared` data, at the precision in force."""
        if torch.is_grad_enabled() and (x.requires_grad or y.requires_grad):
            return super().gram(x, y)
        # a pass over a large matrix takes as long as its exponentials
        return squared_distances(x, y, self.resolved_gamma, then=lambda some: some.mul_(-self.resolved_gamma).exp_())

    def site_grams(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Write the kernel minus one of S sites, of values x [S, N, V] and y [S, M, V], to out [S, N, M]."""
        gamma, norms = self.resolved_gamma, torch.linalg.vecdot(x, x)[:, :, None]
        torch.add(norms, torch.linalg.vecdot(y, y)[:, None], out=out)
        out.baddbmm_(x, y.transpose(1, 2), beta=-gamma, alpha=2 * gamma)
        return out.clamp_max_(0).expm1_()

    def frequencies(self, normal: Callable[[], Tensor]) -> Tensor:
        """Return normal numbers with variance 2 · gamma."""
        return math.sqrt(2 * self.resolved_gamma) * normal()


def sigma_by_eigenvalue_gap(features: Tensor, gap: float = 0.01) -> float:
    """Return a wide Gaussian kernel's sigma that still keeps the two largest eigenvalues close to each other.

    They are those of K/N, K the Gram matrix of the first 1000 samples: N equal ones of 1/N as sigma approaches 0, one
    of 1 as it grows. It is found by bisection, as a width at which the gap between the two largest crosses `gap`. That
    keeps one mode from standing for all samples; the median heuristic, mostly wider, compares by coarser traits.
    Use it as `GaussianKernel.from_sigma(sigma_by_eigenvalue_gap(reference_outputs))`, once for each space.

    Args:
        features: [N, D], N at least 2.
        gap: positive; from 1 on any width will do, and the widest is returned.

    Returns:
        sigma of exp(-‖x - y‖² / (2 sigma²)), within a factor of 32 of the median heuristic's.

    Raises:
        TypeError: if `features` is not a tensor of real numbers.
        ValueError: if samples are fewer than 2 or not finite, so many are equal that no width will do, or `gap` is not
            positive.

    References:
        Lotfian, Jalali and Farnia, "PromptSplit: Revealing Prompt-Level Disagreement in Generative Models", arXiv
            2602.04009, which takes a gap of 0.01.

    Example:
        >>> x = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
        >>> sigma = sigma_by_eigenvalue_gap(x, gap=0.1)
        >>> values = torch.linalg.eigvalsh(GaussianKernel.from_sigma(sigma)(x, x) / 200)
        >>> 0.08 < values[-1] - values[-2] <= 0.1
        tensor(True)
    """
    x = check_features("features", features).detach()[:MEDIAN_SAMPLES].double()
    check_min_samples("features", x)
    check_positive("gap", gap)
    median = GaussianKernel().resolved(x)
    with full_precision():
        distances = median.distances(*median.prepared(x, x))
        low, high = (median.resolved_gamma * 32.0**power for power in (-2, 2))  # of the widest and the narrowest
        if _gap(torch.exp(-high * distances)) > gap:
            raise ValueError(
                f"Expected `features` whose two largest eigenvalues are within `gap`={gap:g} of each other for some "
                "width, but too many samples are equal. Drop repeated samples, or raise `gap`."
            )
        for _ in range(STEPS):
            middle = (low * high) ** 0.5
            if _gap(torch.exp(-middle * distances)) > gap:
                low = middle
            else:
                high = middle
    return float((2 * high) ** -0.5)


def _gap(gram: Tensor) -> float:
    values = torch.linalg.eigvalsh(gram / len(gram))
    return float(values[-1] - values[-2])
