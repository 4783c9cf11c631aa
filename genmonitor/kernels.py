# SPDX-License-Identifier: Apache-2.0
"""Kernels, their median heuristic, and the distances that they are functions of."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from genmonitor import checks
from genmonitor.features import unit_sphere
from genmonitor.precision import full_precision

MEDIAN_SAMPLES = 1000
"""The median heuristic looks at the first so many samples: 499,500 pairs."""


CACHE = 2**22
"""Bytes that stay in a processor's cache between two passes: 4 MiB."""

MEMORY_BUDGET = 2**29
"""Bytes that a temporary may take: 512 MiB. Larger work is done a block of rows at a time."""


def centred(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Shift both sets by one vector, the mean of `y`: distances stay, and float32 survives data at 100 ± 0.01.

    Args:
        x: samples [N, D].
        y: samples [M, D].

    Returns:
        Both sets, shifted.
    """
    shift = y.detach().mean(0)
    return x - shift, y - shift


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared Euclidean distances through one matrix product, never negative.

    Rounding is relative to the squared norms, so shift the data near zero first (`centred`).

    Args:
        x: samples [N, D].
        y: samples [M, D].

    Returns:
        Distances [N, M].

    Example:
        >>> squared_distances(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[25.]])
    """
    squares = _squared_norms(x)[:, None] + _squared_norms(y)
    return torch.addmm(squares, x, y.T, alpha=-2).clamp_min(0)


def row_blocks(rows: int, bytes_per_entry: int, columns: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut the rows of a matrix into blocks within the memory budget; of a symmetric one sixteen, of 256 rows at least.

    Each block costs a few products beyond the upper triangle, and products of fewer rows are slow.

    Args:
        rows: rows of the matrix.
        bytes_per_entry: bytes held at once per entry of a block.
        columns: columns of the matrix; None for a symmetric one, of which only the upper triangle is wanted.

    Yields:
        (start, stop) of each block.

    Example:
        >>> list(row_blocks(5, bytes_per_entry=4, columns=7))
        [(0, 5)]
    """
    within_budget = max(1, MEMORY_BUDGET // (bytes_per_entry * (columns or rows)))
    step = min(within_budget, rows) if columns else min(within_budget, max(256, -(-rows // 16)))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def in_cache(count: int, bytes_each: int, cache: int = CACHE) -> Iterator[slice]:
    """Cut things of so many bytes each into as many at a time as stay in the cache.

    Example:
        >>> list(in_cache(5, bytes_each=4, cache=8))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    step = max(1, cache // bytes_each)
    return (slice(start, start + step) for start in range(0, count, step))


def symmetric_product(x: Tensor) -> Tensor:
    """Return x xᵀ, multiplying the upper triangle only.

    Args:
        x: [N, D].

    Returns:
        [N, N].
    """
    out = x.new_empty(len(x), len(x))
    for start, stop in row_blocks(len(x), x.element_size()):
        out[start:stop, start:] = x[start:stop] @ x[start:].T
        out[stop:, start:stop] = out[start:stop, stop:].T
    return out


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
            checks.positive("gamma", self.gamma)

    @property
    def width(self) -> float:
        """Return gamma, which must be set."""
        if self.gamma is None:
            raise ValueError("Expected `gamma` to be set, but got None. Give a number or call `resolved` with data.")
        return self.gamma

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distances [N, M] that the kernel decays with, of data near zero (`centred`)."""
        raise NotImplementedError(f"{type(self).__name__} is not a function of a distance.")

    def decay(self, distances: Tensor) -> Tensor:
        """Return exp(-gamma · distances)."""
        return torch.exp(-self.width * distances)

    def resolved(self, x: Tensor) -> Kernel:
        """Return the kernel with its gamma set: one over the median distance between the first 1000 samples of x.

        Args:
            x: samples [N, D], N at least 2.

        Raises:
            ValueError: if the samples are fewer than 2 or the median distance is zero.
        """
        if self.gamma is not None:
            return self
        checks.enough("x", x)
        first = x.detach()[:MEDIAN_SAMPLES]
        columns = MEMORY_BUDGET // (8 * 8 * len(first)) if self.sums_over_sites else first.shape[1]
        distances = torch.zeros(len(first), len(first), dtype=torch.float64, device=first.device)
        with full_precision():
            for part in first.split(max(1, columns), dim=1):
                shifted = part - part.mean(0, dtype=torch.float64)  # not in place: the samples are the caller's
                distances += self.distances(shifted, shifted)
        upper = torch.triu_indices(len(first), len(first), offset=1, device=first.device)
        median = float(distances[upper[0], upper[1]].quantile(0.5))
        if median == 0:
            raise ValueError(
                "Expected samples that differ for the median heuristic, but more than half of the "
                "distances are 0. Give the kernel a `gamma`."
            )
        return replace(self, gamma=1 / median)

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of data near zero (`centred`), at the precision in force."""
        return self.decay(self.distances(x, y))

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of x [N, D] and y [M, D], in full precision.

        Raises:
            ValueError: if they differ in D or dtype, or are not finite.
        """
        checks.finite("x", checks.tensor("x", x))
        checks.finite("y", checks.tensor("y", y))
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or x.dtype != y.dtype:
            raise ValueError(
                f"Expected `x` [N, D] and `y` [M, D] of one D and dtype, but got {list(x.shape)} of {x.dtype} and "
                f"{list(y.shape)} of {y.dtype}. Flatten images by x.flatten(1); convert one to the other's dtype."
            )
        with full_precision():
            return self.gram(*(centred(x, y) if self.sums_over_sites else (x, y)))


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
        return cls(gamma=1 / (2 * checks.positive("sigma", sigma) ** 2))

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """Return squared Euclidean distances [N, M]."""
        return squared_distances(x, y)

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the Gram matrix [N, M] of data near zero (`centred`), at the precision in force."""
        if torch.is_grad_enabled() and (x.requires_grad or y.requires_grad):
            return super().gram(x, y)
        # in place and by rows that stay in the cache: a pass over a large matrix takes as long as its exponentials
        out = torch.addmm(-_squared_norms(y), x, y.T, alpha=2)
        rows = _rows_in_cache(out)
        for some, squares in zip(out.split(rows), _squared_norms(x).split(rows), strict=True):
            some.sub_(squares[:, None]).clamp_max_(0).mul_(self.width).exp_()
        return out


def _squared_norms(x: Tensor) -> Tensor:
    return torch.cat([torch.linalg.vecdot(some, some) for some in x.split(_rows_in_cache(x))])


def _rows_in_cache(matrix: Tensor) -> int:
    return max(1, CACHE // (matrix.element_size() * max(1, matrix.shape[1])))


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


@dataclass(frozen=True)
class CosineKernel(Kernel):
    """The cosine kernel ⟨x, y⟩ / (‖x‖ ‖y‖), which has no width.

    Example:
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
