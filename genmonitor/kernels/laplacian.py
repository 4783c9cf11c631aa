# SPDX-License-Identifier: Apache-2.0
"""The Laplacian kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from genmonitor.kernels.base import Kernel


@dataclass(frozen=True)
class LaplacianKernel(Kernel):
    """The Laplacian kernel exp(-gamma ‖x - y‖₁).

    Args:
        gamma: positive; None takes one over the median L1 distance of the data at hand, once.

    Example:
        >>> LaplacianKernel(gamma=0.5)(torch.zeros(1, 2), torch.ones(1, 2))
        tensor([[0.3679]])
    """

    exponential: ClassVar[bool] = True
    sums_over_sites: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    explicit_features: ClassVar[Literal["exact", "random"] | None] = "random"

    @property
    def unit(self) -> float | None:
        """Gamma: distances grow with samples."""
        return self.resolved_gamma

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Return L1 distances [N, M]."""
        return torch.cdist(x, y, p=1)

    def prepared(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return both sets as they are, since distances are sums of differences, unless gamma is beyond their dtype."""
        kind = torch.finfo(x.dtype)
        if self.gamma is None or kind.tiny**0.5 <= self.gamma <= kind.max**0.5:
            return x, y
        return x.double(), y.double()

    def site_grams(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Write the kernel minus one of S sites, of values x [S, N, V] and y [S, M, V], to out [S, N, M]."""
        return torch.mul(torch.cdist(x, y, p=1), -self.resolved_gamma, out=out).expm1_()

    def frequencies(self, normal: Callable[[], Tensor]) -> Tensor:
        """Return numbers with the Cauchy distribution: quotients of normal ones have it."""
        return self.resolved_gamma * normal() / normal()
