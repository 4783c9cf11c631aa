# SPDX-License-Identifier: Apache-2.0
"""The matrices whose spectra count modes: covariances of explicit features, and Gram matrices of the samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from genmonitor._validation import check_at_least
from genmonitor.kernels.base import Kernel, check_kernel, check_unit_diagonal
from genmonitor.kernels.builtin import CosineKernel
from genmonitor.linalg import chunking
from genmonitor.linalg.chunking import mirrored, row_blocks
from genmonitor.linalg.distances import symmetric_product
from genmonitor.linalg.feature_maps import fourier_features
from genmonitor.linalg.precision import full_precision

CHUNK_ROWS = 4096
"""Samples per product."""


def check_kernels(num_features: int | None, **kernels: Kernel | None) -> list[Kernel]:
    """Return the kernels by the names of their arguments, cosine for None; refuse those invalid for any samples."""
    out = []
    for name, kernel in kernels.items():
        check_kernel(name, kernel, "CosineKernel()")
        out.append(kernel or CosineKernel())
    if num_features is not None:
        check_at_least("num_features", num_features, 1)
        kinds = {kernel.explicit_features for kernel in out}
        if "random" not in kinds or None in kinds:
            raise ValueError(
                "Expected a kernel with random features, such as a GaussianKernel with "
                f"`num_features`={num_features}, but got {', '.join(map(repr, out))}. Leave `num_features` out: the "
                "cosine kernel has exact features of its own, others have none."
            )
    return out


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Features of norm 1 whose products are the kernel, exactly or in expectation: samples [N, D] to [N, P].

    Attributes:
        size: Number P of features.
        kernel: Kernel of the features.
        frequencies: Frequencies of random features [P / 2, D]; None for exact ones.
        factor: Number of values of the first factor, if random features are those of a product of two kernels. They
            are then products of a normal projection of these values and one of the others, over sqrt(P), and
            `frequencies` holds the projections [P, D].
    """

    size: int
    kernel: Kernel
    frequencies: Tensor | None = None
    factor: int | None = None

    def to(self, device: torch.device) -> FeatureMap:
        """Return the map on a device."""
        return self if self.frequencies is None else replace(self, frequencies=self.frequencies.to(device))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the features."""
        with full_precision():
            if self.frequencies is None:
                return self.kernel.features(x)
            if self.factor is None:
                return fourier_features(x, self.frequencies)
            first = slice(self.factor)
            others = slice(self.factor, None)
            projection = self.frequencies.to(x).T
            return (x[:, first] @ projection[first]) * (x[:, others] @ projection[others]) / math.sqrt(self.size)


def check_side(name: str, x: Tensor, kernel: Kernel) -> Kernel:
    """Return the kernel with its gamma set from samples [N, D]; refuse samples for which it is not defined."""
    kernel.check_samples(name, x)
    return kernel.resolved(x)


def has_features(kernel: Kernel, num_features: int | None) -> bool:
    """Return True if the kernel has explicit features: exact ones, or random ones."""
    return kernel.explicit_features == "exact" or num_features is not None


def exact_features(kernel: Kernel, dim: int) -> FeatureMap:
    """Return the map of a kernel with exact features of samples [N, dim]."""
    return FeatureMap(kernel.features(torch.ones(1, dim)).shape[1], kernel)


def random_features(kernel: Kernel, dim: int, num_features: int, seed: int) -> FeatureMap:
    """Return a map of a kernel with random features and its gamma set; the same arguments give the same map."""
    generator = torch.Generator().manual_seed(check_at_least("seed", seed, 0))
    normal = partial(torch.randn, num_features, dim, generator=generator, dtype=torch.float32)
    return FeatureMap(2 * num_features, kernel, kernel.frequencies(normal))


def feature_map(kernel: Kernel, dim: int, num_features: int | None, seed: int) -> FeatureMap | None:
    """Return the map of a kernel with its gamma set; None if it has no explicit features."""
    if kernel.explicit_features == "exact":
        return exact_features(kernel, dim)
    return None if num_features is None else random_features(kernel, dim, num_features, seed)


def add_moments(products: Tensor, samples: Sequence[Tensor], maps: Sequence[FeatureMap]) -> Tensor:
    """Add Σ φ φᵀ of samples, φ the features of all sides one after the other, to a matrix, in place.

    Features and products are float64 for samples of any dtype. The error of float32 products, 1e-7 of the largest
    eigenvalue, would exceed the small eigenvalues, on which entropies of orders up to 1 depend.

    Args:
        products: Sum to add to, float64 [P, P], for P features of all sides together.
        samples: Samples [N, D] of each side.
        maps: Feature map of each side.

    Returns:
        The sum Σ φ [P], float64.
    """
    dim = sum(side.size for side in maps)
    total = products.new_zeros(dim)
    rows = min(CHUNK_ROWS, max(1, chunking.MEMORY_BUDGET // (4 * 8 * dim)))
    for start in range(0, len(samples[0]), rows):
        chunk = [side(x[start : start + rows].double()) for side, x in zip(maps, samples, strict=True)]
        features = chunk[0] if len(chunk) == 1 else torch.cat(chunk, 1)
        total = total + features.sum(0)
        with full_precision():
            products.addmm_(features.T, features)
    return total


def covariance(samples: Sequence[Tensor], maps: Sequence[FeatureMap]) -> Tensor:
    """Return (1/N) Σ φ φᵀ [P, P], float64, where φ are the features of all sides one after the other."""
    dim = sum(side.size for side in maps)
    products = torch.zeros(dim, dim, dtype=torch.float64, device=samples[0].device)
    add_moments(products, samples, maps)
    return products / len(samples[0])


def gram_matrix(x: Tensor, kernel: Kernel, features: FeatureMap | None = None) -> Tensor:
    """Return the Gram matrix [N, N], float64, of samples [N, D], computed from the pairs above the diagonal.

    Args:
        x: Samples [N, D].
        kernel: Kernel with its gamma set.
        features: Features of the kernel; if they are random, their products replace it.
    """
    x = x.double()
    if features is not None and features.frequencies is not None:
        return symmetric_product(features(x))
    x, _ = kernel.prepared(x, x)

    def blocks() -> Iterator[tuple[int, int, Tensor]]:
        for start, stop in row_blocks(len(x), 4 * x.element_size()):
            block = kernel.gram(x[start:stop], x[start:])
            check_unit_diagonal(kernel, block.diagonal())
            yield start, stop, block

    with full_precision():
        return mirrored(len(x), blocks(), x).fill_diagonal_(1)
