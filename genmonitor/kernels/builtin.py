# SPDX-License-Identifier: Apache-2.0
"""The kernels of the package: Gaussian, Laplacian and cosine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from genmonitor._validation import check_no_zero_rows, check_positive
from genmonitor.kernels.base import Kernel
from genmonitor.linalg.distances import centered, squared_distances
from genmonitor.linalg.feature_maps import unit_sphere


@dataclass(frozen=True)
class GaussianKernel(Kernel):
    """The Gaussian kernel exp(-gamma ‖x - y‖²).

    Args:
        gamma: Positive number; None for the inverse median squared distance of the first data.

    Example:
        >>> GaussianKernel(gamma=0.5)(torch.zeros(1, 2), torch.ones(1, 2))
        tensor([[0.3679]])
        >>> GaussianKernel.from_sigma(2.0)
        GaussianKernel(gamma=0.125)
    """

    factorizes: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    explicit_features: ClassVar[Literal["exact", "random"] | None] = "random"
    has_taylor_features: ClassVar[bool] = True

    @classmethod
    def from_sigma(cls, sigma: float) -> GaussianKernel:
        """Make exp(-‖x - y‖² / (2 sigma²)), that is gamma = 1 / (2 sigma²)."""
        return cls(gamma=1 / (2 * check_positive("sigma", sigma) ** 2))

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Return squared Euclidean distances [N, M]."""
        return squared_distances(x, y, self.gamma)

    def prepared(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return both sets near zero, in float64 if their own dtype loses distances."""
        return centered(x, y, self.gamma)

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of `prepared` data, in the current precision."""
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


@dataclass(frozen=True)
class LaplacianKernel(Kernel):
    """The Laplacian kernel exp(-gamma ‖x - y‖₁).

    Args:
        gamma: Positive number; None for the inverse median L1 distance of the first data.

    Example:
        >>> LaplacianKernel(gamma=0.5)(torch.zeros(1, 2), torch.ones(1, 2))
        tensor([[0.3679]])
    """

    factorizes: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = True
    explicit_features: ClassVar[Literal["exact", "random"] | None] = "random"

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Return L1 distances [N, M]."""
        return torch.cdist(x, y, p=1)

    def site_grams(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Write the kernel minus one of S sites, of values x [S, N, V] and y [S, M, V], to out [S, N, M]."""
        return torch.mul(torch.cdist(x, y, p=1), -self.resolved_gamma, out=out).expm1_()

    def frequencies(self, normal: Callable[[], Tensor]) -> Tensor:
        """Return numbers with the Cauchy distribution, as quotients of normal ones."""
        return self.resolved_gamma * normal() / normal()


@dataclass(frozen=True)
class CosineKernel(Kernel):
    """The cosine kernel ⟨x, y⟩ / (‖x‖ ‖y‖), which has no gamma.

    Example:
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
