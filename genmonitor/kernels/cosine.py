# SPDX-License-Identifier: Apache-2.0
"""The cosine kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from genmonitor._validation import check_no_zero_rows
from genmonitor.kernels.base import Kernel
from genmonitor.linalg.feature_maps import unit_sphere


@dataclass(frozen=True)
class CosineKernel(Kernel):
    """The cosine kernel ⟨x, y⟩ / (‖x‖ ‖y‖), which takes no gamma.

    Example:
        >>> import torch
        >>> CosineKernel()(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
        tensor([[1., 0.]])
    """

    takes_gamma: ClassVar[bool] = False
    explicit_features: ClassVar[Literal["exact", "random"] | None] = "exact"

    def check_samples(self, name: str, x: Tensor) -> None:
        """Refuse zero vectors, which have no direction."""
        check_no_zero_rows(name, x)

    def features(self, x: Tensor) -> Tensor:
        """Return the samples divided by their norms [N, D]."""
        return unit_sphere(x)

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the cosines [N, M]."""
        return unit_sphere(x) @ unit_sphere(y).T
