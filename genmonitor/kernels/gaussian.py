# SPDX-License-Identifier: Apache-2.0
"""The Gaussian kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from genmonitor._validation import check_positive
from genmonitor.kernels.base import Kernel
from genmonitor.linalg.distances import centered, holds_distances, squared_distances


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
