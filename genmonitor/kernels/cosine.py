# SPDX-License-Identifier: Apache-2.0
"""The cosine kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from genmonitor.kernels.base import Kernel
from genmonitor.linalg.feature_maps import unit_sphere


@dataclass(frozen=True)
class CosineKernel(Kernel):
    """The cosine kernel ⟨x, y⟩ / (‖x‖ ‖y‖), which has no width.

    Example:
        >>> import torch
        >>> CosineKernel()(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
        tensor([[1., 0.]])
    """

    takes_width: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.gamma is not None:
            raise ValueError(f"Expected no `gamma` for CosineKernel, but got {self.gamma!r}. It has no width.")

    def resolved(self, x: Tensor) -> Kernel:
        """Return the kernel itself: there is nothing to take from data."""
        return self

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the cosines [N, M]."""
        return unit_sphere(x) @ unit_sphere(y).T
