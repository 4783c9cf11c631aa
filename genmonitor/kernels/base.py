# SPDX-License-Identifier: Apache-2.0
"""Kernel: the Gram matrix, the median heuristic for gamma, and properties that algorithms use."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from genmonitor._validation import check_features, check_min_samples, check_positive, check_tensor
from genmonitor.linalg import chunking
from genmonitor.linalg.precision import full_precision

MEDIAN_SAMPLES = 1000
"""Number of samples of the median heuristic, the first ones: 499,500 pairs."""


@dataclass(frozen=True)
class Kernel(ABC):  # noqa: B024 - abstract, so that jsonargparse takes a subclass by its class_path
    """A positive definite kernel with k(x, x) = 1: `kernel(x, y)` gives the Gram matrix [N, M] of x [N, D], y [M, D].

    A subclass defines `distances`, and `decay` unless that is exp(-gamma · distance); or `gram`. Its other properties
    allow shortcuts and must be correct. Without them algorithms take a way that is correct for every kernel, or refuse
    the kernel by name.

    `gamma` is None until `resolved` takes it from data. The larger it is, the narrower the kernel.
    """

    gamma: float | None = None
    takes_gamma: ClassVar[bool] = True
    """True if the kernel decays with `distances` at a rate gamma."""
    factorizes: ClassVar[bool] = False
    """True if the kernel is exp(-gamma · distance) with distances that are sums of those of the samples' parts, for any
    division. It is then the product of the kernels of the parts.
    """
    shift_invariant: ClassVar[bool] = False
    """True if k(x + s, y + s) = k(x, y)."""
    explicit_features: ClassVar[Literal["exact", "random"] | None] = None
    """"exact" if the kernel is the product of `features`, "random" if it is the mean of waves with random
    `frequencies`.
    """
    has_taylor_features: ClassVar[bool] = False
    """True if the kernel has the features of `genmonitor.linalg.feature_maps.taylor_features`."""

    def __post_init__(self) -> None:
        if self.gamma is not None and not self.takes_gamma:
            raise ValueError(f"Expected no `gamma` for {type(self).__name__}, but got {self.gamma!r}. It takes none.")
        if self.gamma is not None:
            check_positive("gamma", self.gamma)

    @property
    def resolved_gamma(self) -> float:
        """Return gamma, which must be set."""
        if self.gamma is None:
            raise ValueError("Expected `gamma` to be set, but got None. Give a number or call `resolved` with data.")
        return self.gamma

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distances [N, M] of `prepared` data on which the kernel depends."""
        raise NotImplementedError(f"{type(self).__name__} is not a function of a distance.")

    def prepared(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return both sets in the form and dtype in which `distances` and `gram` are exact.

        Rows may be separated afterwards; `y` may be `x`.
        """
        return x, y

    def check_samples(self, name: str, x: Tensor) -> None:  # noqa: B027 - defined for all samples
        """Refuse samples [N, D] for which the kernel is not defined."""

    def decay(self, distances: Tensor) -> Tensor:
        """Return exp(-gamma · distances)."""
        return torch.exp(-self.resolved_gamma * distances)

    def resolved(self, x: Tensor) -> Kernel:
        """Return the kernel with its gamma set: the inverse median distance between the first 1000 samples of x.

        Args:
            x: Samples [N, D], N at least 2.

        Raises:
            TypeError: If x is not a dense tensor of real numbers.
            ValueError: If the samples are fewer than 2, or the median distance is zero or overflows float64.
        """
        if self.gamma is not None or not self.takes_gamma:
            return self
        x = check_tensor("x", x)
        check_min_samples("x", x)
        first = x.detach()[:MEDIAN_SAMPLES]
        columns = chunking.MEMORY_BUDGET // (8 * 8 * len(first)) if self.factorizes else first.shape[1]
        distances = torch.zeros(len(first), len(first), dtype=torch.float64, device=first.device)
        with full_precision():
            for part in first.split(max(1, columns), dim=1):
                wide = part.double()
                distances += self.distances(*self.prepared(wide, wide))
        upper = torch.triu_indices(len(first), len(first), offset=1, device=first.device)
        median = float(distances[upper[0], upper[1]].quantile(0.5))
        if median == 0:
            raise ValueError(
                "Expected samples that differ for the median heuristic, but more than half of the "
                "distances are 0. Give the kernel a `gamma`."
            )
        if not 0 < 1 / median < math.inf:
            raise ValueError(
                f"Expected samples whose distances fit in float64, but their median is {median:.3g}. Scale the samples."
            )
        return replace(self, gamma=1 / median)

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of `prepared` data, in the current precision."""
        return self.decay(self.distances(x, y))

    def site_grams(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Write the kernel minus one of S sites, of values x [S, N, V] and y [S, M, V], to out [S, N, M]."""
        for own, other, gram in zip(x.double(), y.double(), out, strict=True):
            gram.copy_(self.gram(*self.prepared(own, other)) - 1)
        return out

    def features(self, x: Tensor) -> Tensor:
        """Map samples [N, D] to features [N, P] whose products are the kernel, if explicit features are "exact"."""
        raise NotImplementedError(f"{type(self).__name__} has no exact features.")

    def frequencies(self, normal: Callable[[], Tensor]) -> Tensor:
        """Return random ω [R, D] with k(x, y) = E cos(ωᵀ(x - y)), if explicit features are "random".

        Args:
            normal: Function that draws standard normal numbers [R, D], new ones at each call.
        """
        raise NotImplementedError(f"{type(self).__name__} has no random features.")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of x [N, D] and y [M, D], in full precision.

        Integers and short floating-point numbers become float32.

        Raises:
            TypeError: If one is not a tensor of real numbers.
            ValueError: If they differ in D or dtype, or are not finite.
        """
        x, y = check_features("x", x), check_features("y", y)
        if x.shape[1] != y.shape[1] or x.dtype != y.dtype:
            raise ValueError(
                f"Expected `x` [N, D] and `y` [M, D] of one D and dtype, but got {list(x.shape)} of {x.dtype} and "
                f"{list(y.shape)} of {y.dtype}. Flatten images by x.flatten(1); convert one to the other's dtype."
            )
        with full_precision():
            return self.gram(*self.prepared(x, y)).to(x.dtype)


def check_kernel(name: str, kernel: object, example: str = "GaussianKernel()", with_gamma: bool = False) -> None:
    """Refuse an argument that is neither None nor a kernel or, if a gamma is needed, a kernel without one."""
    if kernel is not None and not isinstance(kernel, Kernel):
        raise ValueError(f"Expected `{name}` to be a kernel such as {example}, but got {kernel!r}.")
    if with_gamma and isinstance(kernel, Kernel) and not kernel.takes_gamma:
        raise ValueError(
            f"Expected `{name}` to be a GaussianKernel or LaplacianKernel, or one of your own with a gamma, but got "
            f"{kernel!r}."
        )


def check_unit_diagonal(kernel: Kernel, values: Tensor) -> None:
    """Refuse a kernel whose values k(x, x) are not 1, since sums assume this."""
    worst = float((values.detach() - 1).abs().max()) if len(values) else 0.0
    if not worst <= 1e-3:
        raise ValueError(
            f"Expected a kernel with k(x, x) = 1, but that of {kernel!r} is off by {worst:.3g}. Let its `gram` "
            "divide by sqrt(k(x, x) k(y, y))."
        )
