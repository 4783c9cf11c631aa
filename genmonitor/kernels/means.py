# SPDX-License-Identifier: Apache-2.0
"""Means of a kernel over all pairs of samples, for the whole image and every region of it in one pass.

The distance of two images is the sum of the distances of their regions, so the image costs nothing beyond its regions.
And the dispersion of one set: one minus such a mean, with each sample's part in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import check_at_least, check_features, check_min_samples, check_samples, check_whole_blocks
from genmonitor.kernels.base import Kernel, check_kernel, check_unit_diagonal
from genmonitor.kernels.builtin import GaussianKernel
from genmonitor.kernels.views import Structure, distance_blocks
from genmonitor.linalg.chunking import float64_sum, row_blocks
from genmonitor.linalg.precision import full_precision
from genmonitor.partition import PixelPartition


class KernelMeans(NamedTuple):
    """Means of a kernel over the pairs of two sets, in pairs of blocks; the whole comes before its regions.

    Attributes:
        across: pairs of a fake and a real sample [1 + regions, A, B], float64.
        within_fake: pairs within each fake block [1 + regions, A].
        within_real: pairs within each real block [1 + regions, B].
        fake_block: samples in a fake block.
        real_block: samples in a real block.
    """

    across: Tensor
    within_fake: Tensor
    within_real: Tensor
    fake_block: int
    real_block: int

    def without_diagonal(self) -> KernelMeans:
        """Leave out the pairs of a sample with itself, whose kernel is 1: squared norms without bias."""
        fake, real = self.fake_block, self.real_block
        within_fake = (self.within_fake * fake - 1) / (fake - 1)
        within_real = (self.within_real * real - 1) / (real - 1)
        return self._replace(within_fake=within_fake, within_real=within_real)


def kernel_means(
    fake: Tensor,
    real: Tensor,
    kernel: Kernel,
    *,
    regions: list[Tensor] | None = None,
    block_size: int | None = None,
    within_real: Tensor | None = None,
) -> KernelMeans:
    """Average a kernel over the pairs of samples, within each pair of blocks.

    Args:
        fake: samples [N, D], float32 or float64, flattened.
        real: samples [M, D].
        kernel: with its gamma set; one that factorizes with `regions`.
        regions: indices into D, disjoint and together all of it; None for the whole alone.
        block_size: samples per block, dividing N and M; None for one block.
        within_real: the means of the real side alone where they are known already.
    """
    fake_block, real_block = block_size or len(fake), block_size or len(real)
    with full_precision():
        across = _means_across(fake, real, kernel, regions, fake_block, real_block)
        if within_real is None:
            within_real = means_within(real, kernel, regions, real_block)
        within_fake = means_within(fake, kernel, regions, fake_block)
    return KernelMeans(across, within_fake, within_real, fake_block, real_block)


def check_two_samples(
    fake: Tensor, real: Tensor, kernel: Kernel | None, partition: PixelPartition | None, block_size: int | None
) -> tuple[Tensor, Tensor, Kernel]:
    """Check the two sides of a comparison and give them the kernel that they are compared by.

    Returns:
        Both sides, still in their shape, and the kernel with its gamma set from the real side.
    """
    real, fake = check_sides({"real": real, "fake": fake}, partition)
    check_estimator(kernel, partition, block_size)
    check_whole_blocks("fake", len(fake), block_size)
    check_whole_blocks("real", len(real), block_size)
    return fake, real, (kernel or GaussianKernel()).resolved(real.flatten(1))


def check_sides(samples: Mapping[str, Tensor], partition: PixelPartition | None, minimum: int = 2) -> list[Tensor]:
    """Check the sides of a comparison, the first one's shape being that of all, and give them one dtype."""
    check_estimator(None, partition, None)
    sides: list[Tensor] = []
    for name, given in samples.items():
        sides.append(check_samples(name, given, tuple(sides[0].shape[1:]) if sides else None))
        check_min_samples(name, sides[-1], minimum)
    if partition is not None:
        partition.check_images(name, tuple(sides[-1].shape))
    wide = any(side.dtype == torch.float64 for side in sides)
    return [side.double() if wide else side for side in sides]


def check_estimator(kernel: Kernel | None, partition: PixelPartition | None, block_size: int | None) -> None:
    """Refuse arguments that no samples could make right."""
    check_kernel("kernel", kernel)
    if partition is not None and not isinstance(partition, PixelPartition):
        raise ValueError(f"Expected `partition` to be a PixelPartition, but got {type(partition).__name__}.")
    if partition is not None and kernel is not None and not kernel.factorizes:
        raise ValueError(
            "Expected `kernel` to be a GaussianKernel or LaplacianKernel with a `partition`, or one of your own that "
            f"factorizes as they do, but got {kernel!r}, which is not a product over pixels: the image's value would "
            "not be the product of its regions'."
        )
    if block_size is not None:
        check_at_least("block_size", block_size, 2)


class Dispersion(NamedTuple):
    """How spread samples are.

    Attributes:
        value: one minus the mean kernel of two different samples: 0 where all are the same, float64.
        influence: of each sample on it [N], of mean 0: by how much a unit of its weight changes the value.
    """

    value: Tensor
    influence: Tensor

    @property
    def standard_error(self) -> Tensor:
        """The jackknife's standard error of the value."""
        return (self.influence.var() / len(self.influence)).sqrt()


def kernel_dispersion(x: Tensor, kernel: Kernel) -> Dispersion:
    """Measure how spread samples are, without bias, with the influence of each sample.

    The value is that of the kernel of two samples, 1 - E k(X, X'), a U-statistic: it does not grow with their number.
    With the cosine kernel it is half the mean squared distance of samples of length one. Influences are the
    jackknife's, (N - 1) times what the value loses without a sample, as in `mmd_influence`.

    Args:
        x: samples [N, D]; N at least 3.
        kernel: with its gamma set.

    Returns:
        The value, in [0, 1] for a kernel in [0, 1] and up to 1 + 1 / (N - 1) for the cosine, and the influences.

    Raises:
        TypeError: if x is no tensor of real numbers.
        ValueError: if the samples are fewer than 3, not finite, or the kernel has no gamma.

    References:
        Efron and Stein, "The Jackknife Estimate of Variance", Annals of Statistics 1981.

    Example:
        >>> from genmonitor.kernels import CosineKernel
        >>> found = kernel_dispersion(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), CosineKernel())
        >>> round(float(found.value), 4), [round(x, 4) for x in found.influence.tolist()]
        (0.6667, [-0.6667, -0.6667, 1.3333])
    """
    check_min_samples("x", check_features("x", x), 3)
    n = len(x)
    with torch.no_grad(), full_precision():
        left, right = kernel.prepared(x, x)
        rows = torch.cat([_sums_apart(kernel, left[a:b], right, a) for a, b in row_blocks(n, 3 * 8, columns=n)])
    return Dispersion(rows.mean() / (n - 1), 2 * (rows - rows.mean()) / (n - 2))


def _sums_apart(kernel: Kernel, x: Tensor, y: Tensor, start: int) -> Tensor:
    """Sum one minus the kernel over the other samples: those of x are rows `start` and on of y."""
    apart = 1 - kernel.gram(x, y)
    apart[:, start : start + len(x)].fill_diagonal_(0)  # rounding gives a sample a distance from itself
    return float64_sum(apart, 1)


def _means_across(
    x: Tensor, y: Tensor, kernel: Kernel, regions: list[Tensor] | None, rows: int, columns: int
) -> Tensor:
    """Average the kernel over each pair of blocks of rows and columns: [1 + regions, A, B]."""
    sums = y.new_zeros(1 + len(regions or ()), len(x), len(y) // columns, dtype=torch.float64)
    for region, start, stop, gram in _grams(x, y, kernel, regions):
        sums[region, start:stop] = float64_sum(gram.unflatten(1, (-1, columns)), 2)
    return sums.unflatten(1, (-1, rows)).sum(2) / (rows * columns)


def means_within(x: Tensor, kernel: Kernel, regions: list[Tensor] | None, size: int) -> Tensor:
    """Average the kernel within each block, computing the pairs above the diagonal: [1 + regions, A].

    Args:
        x: samples [N, D].
        kernel: with its gamma set.
        regions: as for `kernel_means`.
        size: samples in a block.
    """
    blocks = []
    for block in x.split(size):
        total = x.new_full((1 + len(regions or ()),), size, dtype=torch.float64)  # the diagonal
        for region, _, _, gram in _grams(block, block, kernel, regions):
            total[region] += _twice_above_diagonal(gram, kernel)
        blocks.append(total / size**2)
    return torch.stack(blocks, 1)


def _twice_above_diagonal(gram: Tensor, kernel: Kernel) -> Tensor:
    """Sum rows of a symmetric matrix from their diagonal block on, standing for the columns before them too."""
    own = gram[:, : len(gram)]
    check_unit_diagonal(kernel, own.diagonal())
    off_diagonal = float64_sum(own) - own.diagonal().sum(dtype=torch.float64)
    return off_diagonal + 2 * float64_sum(gram[:, len(gram) :])


def _grams(
    x: Tensor, y: Tensor, kernel: Kernel, regions: list[Tensor] | None
) -> Iterator[tuple[int, int, int, Tensor]]:
    """Yield the number of a region, 0 for the whole, a first and a last row, and these rows of its Gram matrix.

    Where `y` is `x`, they are rows of the upper triangle. Of samples a few columns are copied at a time, of distances
    what a few rows have.
    """
    same = y is x
    if regions is None:
        x, y = kernel.prepared(x, y)
        for start, stop in row_blocks(len(x), 4 * x.element_size(), columns=None if same else len(y)):
            yield 0, start, stop, kernel.gram(x[start:stop], y[start:] if same else y)
        return
    view = Structure(regions)

    def pieces(region: int) -> Iterator[tuple[Tensor, Tensor]]:
        return (kernel.prepared(sides[0], sides[-1]) for sides in view.pieces(region, *([x] if same else [x, y])))

    for region, start, stop, some in distance_blocks(len(view), pieces, (len(x), len(y)), kernel.distances, same):
        yield region, start, stop, kernel.decay(some)
