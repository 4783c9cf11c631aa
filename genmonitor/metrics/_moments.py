# SPDX-License-Identifier: Apache-2.0
"""Moments of explicit features as a state of fixed size, of one set of samples or of several."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from genmonitor.kernels.covariance import FeatureMap, add_moments, packed_size, unpack
from genmonitor.metrics._kernel_width import KernelMetric


class MomentMetric(KernelMetric):
    """A metric that can stream: it sums 1, φ and φ φᵀ over its samples, φ their explicit features, in float64.

    Each set of samples has the states `count`, `feature_sum` and `products`, a packed triangle, behind a prefix.

    Args:
        kwargs: those of torchmetrics.Metric.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._moment_prefixes: list[str] = []
        self._maps: dict[str, tuple[Hashable, FeatureMap]] = {}

    def _add_moment_states(self, prefix: str = "") -> None:
        self._moment_prefixes.append(prefix)
        for name in ("count", "feature_sum", "products"):  # scalars until the first batch gives them a shape
            default = torch.zeros((), dtype=torch.float64)
            self.add_state(f"{prefix}{name}", default=default, dist_reduce_fx="sum")

    def _add_moments(self, samples: Sequence[Tensor], maps: Sequence[FeatureMap], prefix: str = "") -> None:
        """Add samples [N, D] of all sides, whose features stand one after the other."""
        products = getattr(self, f"{prefix}products")
        if products.ndim == 0:
            products = products.new_zeros(packed_size(sum(side.size for side in maps)))
            setattr(self, f"{prefix}products", products)
        total = add_moments(products, samples, maps)
        setattr(self, f"{prefix}feature_sum", getattr(self, f"{prefix}feature_sum") + total)
        setattr(self, f"{prefix}count", getattr(self, f"{prefix}count") + len(samples[0]))

    def _mean_moments(self, prefix: str = "") -> tuple[Tensor, Tensor]:
        """Return the means of φ φᵀ [P, P] and of φ [P], float64; there must be samples."""
        count, total = getattr(self, f"{prefix}count"), getattr(self, f"{prefix}feature_sum")
        return unpack(getattr(self, f"{prefix}products"), len(total)) / count, total / count

    def _unshare_moments(self) -> None:
        """Copy what `update` adds to in place: the metrics of a compute group share it."""
        for prefix in self._moment_prefixes:
            setattr(self, f"{prefix}products", getattr(self, f"{prefix}products").clone())

    def _feature_map(self, name: str, key: Hashable, draw: Callable[[], FeatureMap]) -> FeatureMap:
        """Return a feature map on the metric's device, drawn anew only if `key` or the device has changed."""
        key = (key, self.device)
        if name not in self._maps or self._maps[name][0] != key:
            self._maps[name] = (key, draw().to(self.device))
        return self._maps[name][1]
