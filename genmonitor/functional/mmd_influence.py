# SPDX-License-Identifier: Apache-2.0
"""The influence of each sample on the maximum mean discrepancy, region by region: all that a later comparison needs.

Sums are of the kernel minus one: the constant is in no value or variance of MMD without bias, and where a kernel is so
wide that it is one but for a little, float32 holds the little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from genmonitor.functional.two_sample_test import MIN_SAMPLES
from genmonitor.kernels import GaussianKernel, Kernel
from genmonitor.kernels.base import check_kernel
from genmonitor.kernels.means import check_sides
from genmonitor.kernels.views import SampleView, Structure, distance_blocks
from genmonitor.linalg.chunking import float64_sum, row_blocks
from genmonitor.linalg.precision import full_precision
from genmonitor.partition import PixelPartition

MULTIPLIERS = (0.5, 2.0, 8.0, 32.0)
"""The default kernel is a mean of Gaussians whose gammas are these over the mean squared distance of real samples."""

BALANCED_ON = 1000
"""Each Gaussian is weighed by one over what its MMD varies by among real samples: at least so many of them where
there are as many, spread evenly."""

TYPICAL = 2.0
"""float32 holds the exponents of this multiplier to within a millionth, those of 32 to within sixteen millionths."""


class KernelSums(NamedTuple):
    """Sums of the kernel minus one, for the image and then each region.

    Attributes:
        rows: over the columns [R, N], float64.
        columns: over the rows [R, M].
        squares: of squares, over all pairs [R].
        by_gamma: of each Gaussian of the mean alone, over all pairs [R, multipliers].
    """

    rows: Tensor
    columns: Tensor
    squares: Tensor
    by_gamma: Tensor

    @classmethod
    def zeros(cls, regions: int, n: int, m: int, gammas: int, device: torch.device) -> KernelSums:
        """Return the sums over no pairs."""
        shapes = ((regions, n), (regions, m), (regions,), (regions, gammas))
        return cls(*(torch.zeros(shape, dtype=torch.float64, device=device) for shape in shapes))


@dataclass(frozen=True, eq=False)
class RegionKernel:
    """A kernel of images, and of each of R - 1 regions.

    Attributes:
        names: of the regions, "image" first.
        view: what is compared of samples, in parts. Their distances add up to the image's, or, where those of `base` do
            not or it is not exponential, the image is the first part.
        gamma: 1 over the mean squared distance of real samples [R], or the given kernel's; 0 where there is no kernel.
        base: the kernel whose distances are taken.
        multipliers: of gamma; the kernel is a mean over them.
        mixture: what each counts in the mean [R, multipliers], summing to 1.
        spread: root mean square of each one's centered kernel of two real samples [R, multipliers].
    """

    names: tuple[str, ...]
    view: SampleView
    gamma: Tensor
    base: Kernel
    multipliers: tuple[float, ...]
    mixture: Tensor
    spread: Tensor

    @classmethod
    def of(
        cls, real: Tensor, kernel: Kernel | None, partition: PixelPartition | None, view: SampleView | None = None
    ) -> RegionKernel:
        """Take gammas from real samples, float32 or float64, images with a partition.

        Args:
            real: samples [M, ...].
            kernel: None for a mean of Gaussians, each region's with gammas of its own.
            partition: the regions.
            view: what is compared of samples; None for their values.
        """
        names = ("image", *(partition.regions() if partition else ()))
        view = view or Structure.of(real, partition)
        if kernel is not None:
            kernel = kernel.resolved(real.flatten(1))
            gamma = torch.full((len(names),), kernel.resolved_gamma, dtype=torch.float64, device=real.device)
            if not kernel.factorizes and partition:
                view = Structure([*Structure.of(real, None).columns, *Structure.of(real, partition).columns])
            alone = torch.ones(len(names), 1, dtype=torch.float64)
            given = cls(names, view, gamma, kernel, (1.0,), alone, alone)
            return replace(given, spread=given.spread_among(real))
        scales = region_scales(real, view)
        image = scales.sum()
        if not bool(image.isfinite()):
            raise ValueError(
                "Expected `real` samples whose squared distances float64 holds, but their mean is infinite. Scale the "
                "samples."
            )
        # a region that is constant among the real samples has no gamma of its own and takes the image's
        every = torch.cat([image[None], torch.where(scales > 0, scales, image)])[: len(names)]
        gamma = torch.where(every > 0, 1 / every, 0)
        mixture = torch.ones(len(names), len(MULTIPLIERS), dtype=torch.float64)
        equal = cls(names, view, gamma, GaussianKernel(), MULTIPLIERS, mixture, mixture)
        spread = equal.spread_among(real)
        # each counts one over the standard deviation of its MMD among real samples; where nothing varies, all the same
        counts = torch.where(spread > 0, 1 / spread, 0)
        counts = torch.where(counts.sum(1, keepdim=True) > 0, counts, 1)
        return replace(equal, mixture=counts / counts.sum(1, keepdim=True), spread=spread)

    def spread_among(self, real: Tensor) -> Tensor:
        """Return `spread`, of some of the real samples [M, ...]."""
        some = real[:: max(1, len(real) // BALANCED_ON)]
        out = torch.zeros_like(self.mixture)
        rows: dict[int, list[Tensor]] = {}
        for region, _, _, terms in self._terms(some, some, upper=False):
            rows.setdefault(region, []).append(torch.stack([*terms]))
        for region, blocks in rows.items():
            for number, term in enumerate(torch.cat(blocks, 1)):
                gram = term.double()
                gram = gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()
                out[region, number] = float(
                    (gram.fill_diagonal_(0).square().sum() / (len(gram) * (len(gram) - 1))).sqrt()
                )
        return out

    def sums_within(self, x: Tensor) -> KernelSums:
        """Sum over the pairs of different samples of x [N, ...], each in both orders."""
        sums = KernelSums.zeros(len(self.names), len(x), len(x), len(self.multipliers), x.device)
        for region, start, stop, terms in self._terms(x, x, upper=True):
            gram, by_gamma = self._mean(region, terms, twice_from=stop - start)
            own, beyond = gram[:, : stop - start], gram[:, stop - start :]
            sums.by_gamma[region] += by_gamma
            sums.rows[region, start:stop] += float64_sum(gram, 1)
            sums.rows[region, stop:] += float64_sum(beyond, 0)
            sums.squares[region] += _sum_of_squares(own) + 2 * _sum_of_squares(beyond)
        return sums._replace(columns=sums.rows)

    def sums_across(self, x: Tensor, y: Tensor) -> KernelSums:
        """Sum over the pairs of a sample of x [N, ...] and one of y [M, ...]."""
        sums = KernelSums.zeros(len(self.names), len(x), len(y), len(self.multipliers), x.device)
        for region, start, stop, terms in self._terms(x, y, upper=False):
            gram, by_gamma = self._mean(region, terms)
            sums.by_gamma[region] += by_gamma
            sums.rows[region, start:stop] += float64_sum(gram, 1)
            sums.columns[region] += float64_sum(gram, 0)
            sums.squares[region] += _sum_of_squares(gram)
        return sums

    def _mean(self, region: int, terms: Iterator[Tensor], twice_from: int = 0) -> tuple[Tensor, Tensor]:
        """Return the mean of the terms [N, M], and the sum of each [multipliers], of some columns counted twice."""
        out, by_gamma = None, []
        for part, term in zip(self.mixture[region].tolist(), terms, strict=True):
            out = torch.zeros_like(term) if out is None else out
            out.add_(term, alpha=part)
            total = float64_sum(term)
            by_gamma.append(total + float64_sum(term[:, twice_from:]) if twice_from else total)
        assert out is not None
        return out, torch.stack(by_gamma)

    def _terms(self, x: Tensor, y: Tensor, upper: bool) -> Iterator[tuple[int, int, int, Iterator[Tensor]]]:
        """Yield a region, a first and a last row, and of these rows the kernel minus one at each multiplier of gamma.

        With `upper`, where `y` is `x`, they are rows of the upper triangle, with zeros on the diagonal. Regions without
        a kernel are left out.
        """
        gammas, sets = self.gamma.tolist(), [x] if y is x else [x, y]
        if not self.base.factorizes:
            for region in range(len(self.view)):
                sides = [torch.cat(pieces, 1) for pieces in zip(*self.view.pieces(region, *sets), strict=True)]
                a, b = self.base.prepared(sides[0], sides[-1])
                for start, stop in row_blocks(len(x), 6 * 8, columns=len(y)):
                    gram = self.base.gram(a[start:stop], b[start if upper else 0 :]) - 1
                    yield region, start, stop, iter([gram.fill_diagonal_(0) if upper else gram])
            return

        def pieces(part: int) -> Iterator[tuple[Tensor, Tensor]]:
            gamma, given = gammas[min(part + 1, len(gammas) - 1)], len(self.multipliers) == 1
            kernel = replace(self.base, gamma=gamma * (1 if given else TYPICAL) or 1.0)
            for sides in self.view.pieces(part, *sets):
                # exactly zero where nothing varies, which a mean rounds
                near = sides if given else [x - sides[-1][0] for x in sides]
                yield kernel.prepared(near[0], near[-1])

        shape, measure = (len(x), len(y)), replace(self.base, gamma=gammas[0] or 1.0).distances
        for region, start, stop, distances in distance_blocks(len(self.view), pieces, shape, measure, upper):
            if region < len(gammas) and gammas[region]:
                some = distances.fill_diagonal_(0) if upper else distances
                exponents = (some * (-gammas[region] * multiplier) for multiplier in self.multipliers)
                yield region, start, stop, (x.expm1_() for x in exponents)


def region_scales(real: Tensor, view: SampleView) -> Tensor:
    """Return the mean squared distance of two different real samples [M, ...] in each part of a view: float64 [parts].

    It is twice the sum of the variances, so no pair is looked at.

    Example:
        >>> halves = Structure([torch.tensor([0]), torch.tensor([1])])
        >>> region_scales(torch.tensor([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]]), halves)
        tensor([8., 0.], dtype=torch.float64)
    """
    parts = [[_scale(piece) for (piece,) in view.pieces(part, real)] for part in range(len(view))]
    return torch.stack([torch.stack(pieces).sum() for pieces in parts])


def _scale(piece: Tensor) -> Tensor:
    """Return twice the sum of the variances, exactly 0 where nothing varies: by differences from the first row."""
    near = piece.double() - piece[0]
    return 2 * near.var(0).sum()


def _sum_of_squares(x: Tensor) -> Tensor:
    return float64_sum(x.square())


class MMDInfluence(NamedTuple):
    """The discrepancy of one sample set from real samples, in R regions, and each sample's part in it; all float64.

    A named tuple of tensors and names: `_asdict()` goes into a `state_dict`, and `MMDInfluence(**state)` comes out.

    Attributes:
        regions: names of the R regions, "image" first.
        mmd: squared maximum mean discrepancy without bias [R].
        fake: influence of each fake sample on it [R, N], of mean 0: by how much a unit of its weight changes the value.
        real: influence of each real sample [R, M].
        second_order: how much the variance of the influences exceeds that of the value [R], at least 0.
        real_mean: mean of the kernel minus one over pairs of real samples [R]; it tells other real samples apart.
        gamma: 1 over the mean squared distance of real samples [R], 0 if none vary; or the given kernel's.
        by_gamma: the value for each Gaussian of the kernel alone, by rising gamma [R, 4]; [R, 1] for a given kernel.
        by_chance: standard deviation of each of these between real samples and as many real ones as there are fake.
    """

    regions: tuple[str, ...]
    mmd: Tensor
    fake: Tensor
    real: Tensor
    second_order: Tensor
    real_mean: Tensor
    gamma: Tensor
    by_gamma: Tensor
    by_chance: Tensor


def mmd_influence(
    fake: Tensor, real: Tensor, *, kernel: Kernel | None = None, partition: PixelPartition | None = None
) -> MMDInfluence:
    """Measure MMD² without bias for the image and each region, with the influence of each sample on it.

    Influences are the jackknife's, (N - 1) times what the value loses without a sample: Hájek's projections, but for a
    part of second order. `relative_similarity_from_influences` compares two sets by them.

    Args:
        fake: images [N, C, H, W], or features [N, D] without a partition; N at least 8.
        real: images [M, C, H, W] or features [M, D]; M at least 8, and need not be N.
        kernel: None for a mean of the Gaussian kernels with gamma = 0.5, 2, 8 and 32 over the mean squared distance of
            real samples, in each region its own, each weighed by one over what its MMD varies by among up to 2000 of
            these. A kernel that is given serves all regions with its gamma, which is the median heuristic's where it is
            open.
        partition: which cluster each pixel belongs to.

    Returns:
        The values and influences of `image`, `cluster_1`, …, and `constant` for label 0. A region where real samples do
        not vary takes the image's gamma; where none of them vary everything is 0, unless a kernel is given.

    Raises:
        TypeError: if a side is no tensor of real numbers.
        ValueError: if shapes differ, values are not finite, samples are fewer than 8, the kernel takes no
            gamma, or the partition is of another size.

    References:
        Gretton et al., "A Kernel Two-Sample Test", JMLR 2012, Eq. 3.
        Bounliphone et al., "A Test of Relative Similarity For Model Selection in Generative Models", arXiv 1511.04581.

    Example:
        >>> real = torch.arange(8.0)[:, None]
        >>> found = mmd_influence(real + 1, real)
        >>> found.mmd, found.fake.shape
        (tensor([-0.1561], dtype=torch.float64), torch.Size([1, 8]))
    """
    real, fake = checked_samples({"real": real, "fake": fake}, kernel, partition)
    return RealSide.of(real, kernel, partition).influence(fake)


def checked_samples(
    samples: dict[str, Tensor], kernel: Kernel | None, partition: PixelPartition | None
) -> list[Tensor]:
    """Check the sides of a comparison, the real one first, and give them one dtype."""
    check_kernel("kernel", kernel, with_gamma=True)
    return [side.detach() for side in check_sides(samples, partition, MIN_SAMPLES)]


class RealSide(NamedTuple):
    """Real samples, the kernel they give, and its sums over their pairs: what all sets are compared with.

    Attributes:
        samples: [M, ...].
        kernel: of the image and its regions.
        sums: over pairs of real samples.
    """

    samples: Tensor
    kernel: RegionKernel
    sums: KernelSums

    @classmethod
    def of(
        cls, real: Tensor, kernel: Kernel | None, partition: PixelPartition | None, view: SampleView | None = None
    ) -> RealSide:
        """Look at real samples that are checked, at their values unless another view is given."""
        with torch.no_grad(), full_precision():
            regions = RegionKernel.of(real, kernel, partition, view)
            return cls(real, regions, regions.sums_within(real))

    def influence(self, fake: Tensor) -> MMDInfluence:
        """Compare samples that are checked, and of the dtype of the real ones."""
        with torch.no_grad(), full_precision():
            within = self.kernel.sums_within(fake)
            across = self.kernel.sums_across(fake, self.samples)
        n, m = within.rows.shape[1], self.sums.rows.shape[1]
        across_mean = across.rows.mean(1) / m
        fake_mean, real_mean = within.rows.mean(1) / (n - 1), self.sums.rows.mean(1) / (m - 1)
        return MMDInfluence(
            regions=self.kernel.names,
            mmd=fake_mean + real_mean - 2 * across_mean,
            fake=_influences(within.rows / (n - 2), across.rows / m),
            real=_influences(self.sums.rows / (m - 2), across.columns / n),
            second_order=2 * _second_order_within(within) / ((n - 1) * (n - 2)) + 4 * _second_order(across) / (n * m),
            real_mean=real_mean,
            gamma=self.kernel.gamma,
            by_gamma=within.by_gamma / (n * (n - 1))
            + self.sums.by_gamma / (m * (m - 1))
            - across.by_gamma * 2 / (n * m),
            by_chance=2**0.5 * self.kernel.spread * (1 / n + 1 / m),
        )


def _influences(within: Tensor, across: Tensor) -> Tensor:
    """Return influences [R, N] from each sample's sum over its own side, by N - 2, and mean over the other side."""
    out = 2 * (within - across)
    return out - out.mean(1, keepdim=True)


def _second_order_within(sums: KernelSums) -> Tensor:
    """Estimate the mean square of the centered kernel of two samples of a set [R]; 0 for negative estimates."""
    n, total = sums.rows.shape[1], sums.rows.sum(1)
    squares = sums.squares + total.square() / ((n - 1) * (n - 2)) - 2 / (n - 2) * sums.rows.square().sum(1)
    return squares.clamp_min(0) / (n * (n - 3))


def _second_order(sums: KernelSums) -> Tensor:
    """Estimate the mean square of the kernel of samples of two sets, centered on both sides [R]; at least 0."""
    (n, m), total = (sums.rows.shape[1], sums.columns.shape[1]), sums.rows.sum(1)
    explained = sums.rows.square().sum(1) / m + sums.columns.square().sum(1) / n - total.square() / (n * m)
    return (sums.squares - explained).clamp_min(0) / ((n - 1) * (m - 1))
