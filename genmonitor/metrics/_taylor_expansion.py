# SPDX-License-Identifier: Apache-2.0
"""The points and the degree of the Taylor features that a streaming PixelCKA sums."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genmonitor.functional._cka_taylor import MAX_DEGREE, choose_degree
from genmonitor.linalg import chunking
from genmonitor.linalg.feature_maps import taylor_features, taylor_size


@dataclass(frozen=True, eq=False)
class TaylorExpansion:
    """The Taylor features of the Gaussian kernel of every site, centered well enough for sums of their products.

    Attributes:
        gamma: width of the kernel.
        degree: highest degree of the features.
        site_shift: subtracted from the values of the sites [d, V], float64.
        feature_shift: subtracted from the features [d · R], float64.
    """

    gamma: float
    degree: int
    site_shift: Tensor
    feature_shift: Tensor

    @classmethod
    def of(cls, values: Tensor, gamma: float, tolerance: float) -> TaylorExpansion | None:
        """Choose an expansion by the first images, or None where its covariance would exceed the memory budget.

        Args:
            values: of the sites [d, V, N].
            gamma: width of the kernel.
            tolerance: how far an entry of the CKA may be off.
        """
        shift = values.mean(2, dtype=torch.float64)
        shifted = values.double() - shift[:, :, None]
        varying = (values.amax(2) != values.amin(2)).any(1)
        # one degree more than the first images need, for those to come
        degree = 1 + (choose_degree(shifted[varying], gamma, tolerance) if varying.any() else 1)
        if degree > MAX_DEGREE or not fits(values, degree):
            return None
        feature_shift = taylor_features(shifted, gamma, degree).mean(2).flatten()
        return cls(gamma, degree, shift.cpu(), feature_shift.cpu())

    def shifted(self, values: Tensor) -> Tensor:
        """Return values [d, V, N] less the shift, float64."""
        return values.double() - self.site_shift.to(values.device)[:, :, None]

    def features(self, shifted: Tensor) -> Tensor:
        """Return the features [d · R, N], less their shift, of shifted values [d, V, N]."""
        features = taylor_features(shifted, self.gamma, self.degree).flatten(0, 1)
        return features.sub_(self.feature_shift.to(features.device)[:, None])


def fits(values: Tensor, degree: int) -> bool:
    """Say whether the covariance of the features of values [d, V, N] fits in memory.

    It may take a quarter of the budget, since adding to it and reducing it take three times as much again.
    """
    sites, per_site, _ = values.shape
    return 8 * (sites * taylor_size(per_site, degree)) ** 2 <= chunking.MEMORY_BUDGET // 4
