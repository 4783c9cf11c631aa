# SPDX-License-Identifier: Apache-2.0
"""The Laplacian kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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

    sums_over_sites: ClassVar[bool] = True

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Return L1 distances [N, M]."""
        return torch.cdist(x, y, p=1)

    def prepared(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return both sets as they are, since distances are sums of differences, unless gamma is beyond their dtype."""
        kind = torch.finfo(x.dtype)
        if self.gamma is None or kind.tiny**0.5 <= self.gamma <= kind.max**0.5:
            return x, y
        return x.double(), y.double()
