# SPDX-License-Identifier: Apache-2.0
"""The Gaussian kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from genmonitor._validation import check_positive
from genmonitor.kernels.base import Kernel
from genmonitor.linalg.distances import centered, squared_distances


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

    sums_over_sites: ClassVar[bool] = True

    @classmethod
    def from_sigma(cls, sigma: float) -> GaussianKernel:
        """Make exp(-‖x - y‖² / (2 sigma²)), that is gamma = 1 / (2 sigma²)."""
        return cls(gamma=1 / (2 * check_positive("sigma", sigma) ** 2))

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Return squared Euclidean distances [N, M]."""
        return squared_distances(x, y, self.gamma)

    def prepared(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return both sets near zero, in float64 where their own dtype loses distances."""
        return centered(x, y, self.gamma)

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of `prepared` data, at the precision in force."""
        if torch.is_grad_enabled() and (x.requires_grad or y.requires_grad):
            return super().gram(x, y)
        # a pass over a large matrix takes as long as its exponentials
        return squared_distances(x, y, self.width, then=lambda some: some.mul_(-self.width).exp_())
