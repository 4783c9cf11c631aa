# SPDX-License-Identifier: Apache-2.0
"""What kernels share: a width, its median heuristic, and the Gram matrix."""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from genmonitor._validation import check_finite, check_min_samples, check_positive, check_tensor
from genmonitor.linalg import chunking
from genmonitor.linalg.precision import full_precision

MEDIAN_SAMPLES = 1000
"""The median heuristic looks at the first so many samples: 499,500 pairs."""


@dataclass(frozen=True)
class Kernel(ABC):  # noqa: B024 - abstract, so that jsonargparse takes a subclass by its class_path
    """A positive definite kernel with k(x, x) = 1: `kernel(x, y)` gives the Gram matrix [N, M] of x [N, D], y [M, D].

    `gamma` is None where the width is still to be taken from data by `resolved`.
    """

    gamma: float | None = None
    sums_over_sites: ClassVar[bool] = False
    """Whether distances add up over the parts of a sample, so that the kernel is a product over them."""
    takes_width: ClassVar[bool] = True
    """Whether the kernel has a gamma."""

    def __post_init__(self) -> None:
        if self.gamma is not None:
            check_positive("gamma", self.gamma)

    @property
    def width(self) -> float:
        """Return gamma, which must be set."""
        if self.gamma is None:
            raise ValueError("Expected `gamma` to be set, but got None. Give a number or call `resolved` with data.")
        return self.gamma

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distances [N, M] that the kernel decays with, of `prepared` data."""
        raise NotImplementedError(f"{type(self).__name__} is not a function of a distance.")

    def prepared(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return both sets in the form, and of the dtype, in which `distances` and `gram` lose nothing of them.

        Rows may be taken apart afterwards; `y` may be `x`.
        """
        return x, y

    def decay(self, distances: Tensor) -> Tensor:
        """Return exp(-gamma · distances)."""
        return torch.exp(-self.width * distances)

    def resolved(self, x: Tensor) -> Kernel:
        """Return the kernel with its gamma set: one over the median distance between the first 1000 samples of x.

        Args:
            x: samples [N, D], N at least 2.

        Raises:
            ValueError: if the samples are fewer than 2 or the median distance is zero or beyond what float64 holds.
        """
        if self.gamma is not None:
            return self
        check_min_samples("x", x)
        first = x.detach()[:MEDIAN_SAMPLES]
        columns = chunking.MEMORY_BUDGET // (8 * 8 * len(first)) if self.sums_over_sites else first.shape[1]
        distances = torch.zeros(len(first), len(first), dtype=torch.float64, device=first.device)
        with full_precision():
            for part in first.split(max(1, columns), dim=1):
                distances += self.distances(*self.prepared(part := part.double(), part))
        upper = torch.triu_indices(len(first), len(first), offset=1, device=first.device)
        median = _median(distances[upper[0], upper[1]])
        if median == 0:
            raise ValueError(
                "Expected samples that differ for the median heuristic, but more than half of the "
                "distances are 0. Give the kernel a `gamma`."
            )
        if not 0 < 1 / median < math.inf:
            raise ValueError(
                f"Expected samples whose distances float64 holds, but their median is {median:.3g}. Scale the samples."
            )
        return replace(self, gamma=1 / median)

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of `prepared` data, at the precision in force."""
        return self.decay(self.distances(x, y))

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of x [N, D] and y [M, D], in full precision.

        Raises:
            ValueError: if they differ in D or dtype, or are not finite.
        """
        x, y = check_tensor("x", x), check_tensor("y", y)
        check_finite("x", x)
        check_finite("y", y)
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or x.dtype != y.dtype:
            raise ValueError(
                f"Expected `x` [N, D] and `y` [M, D] of one D and dtype, but got {list(x.shape)} of {x.dtype} and "
                f"{list(y.shape)} of {y.dtype}. Flatten images by x.flatten(1); convert one to the other's dtype."
            )
        with full_precision():
            return self.gram(*self.prepared(x, y)).to(x.dtype)


def _median(values: Tensor) -> float:
    """Return what `quantile(0.5)` does, without sorting them all."""
    lower, upper = (float(values.kthvalue(rank).values) for rank in ((len(values) + 1) // 2, len(values) // 2 + 1))
    return lower + (upper - lower) / 2
