# SPDX-License-Identifier: Apache-2.0
"""Measures of the regions in an evaluation: their distances from real images, and tests of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from genmonitor._validation import check_samples
from genmonitor.distributed import Collective
from genmonitor.functional.cms import cms_from_means
from genmonitor.functional.discrepancy import GroupKernels, View, group_names, views_of_state
from genmonitor.functional.kernel_means import KernelMeans, kernel_means
from genmonitor.functional.mmd import mmd_from_means
from genmonitor.functional.pair_sums import PairSums
from genmonitor.functional.permutation import NUM_PERMUTATIONS, Blocks, familywise_p_values, split_statistics
from genmonitor.functional.relative_similarity import MMDInfluence, influence_of
from genmonitor.kernels import Kernel
from genmonitor.partition import PixelPartition


@dataclass(frozen=True)
class Compared:
    """Fixed values of the comparison of images with real ones.

    Attributes:
        partition: Regions.
        kernel: Kernel of CMS and MMD, with its gamma set.
        views: State of both views and their kernels, see `views_state`, from real images that are not compared with.
        block_size: Block size of CMS; None for all images at once.
        seed: Seed of the permutations.
    """

    partition: PixelPartition
    kernel: Kernel
    views: Mapping[str, Mapping[str, Tensor]]
    block_size: int | None
    seed: int


class RegionMeasures(NamedTuple):
    """Measurements of an evaluation of the regions; only the values if there are too few images to test.

    Attributes:
        values: CMS, shares and MMD by key.
        error: Distance of image and regions from real ones over both views, the root of a biased MMD².
        p: P-values by region.
        distances: Distances of each view by region: MMD² in standard deviations of chance, averaged over the gammas.
        influence: Influence of both views together, on the CPU, for the comparison with later evaluations.
        fake: Generated images of all processes [N, C, H, W].
        real: Real images to compare with.
    """

    values: dict[str, float]
    error: dict[str, float]
    p: Mapping[str, float] = MappingProxyType({})
    distances: Mapping[View, dict[str, float]] = MappingProxyType({})
    influence: MMDInfluence | None = None
    fake: Tensor | None = None
    real: Tensor | None = None


class RegionMetrics:
    """Comparison of generated images with the real ones of this process.

    Args:
        fixed: Values fixed for the run.
        real: Maps of real images [m, c, h, w].
        testable: True if both sides have, over all processes, the 8 images that a test needs.
    """

    def __init__(self, fixed: Compared, real: Tensor, testable: bool) -> None:
        self.fixed, self.testable = fixed, testable
        self._own, self._fake = real, real[:0]
        self.compared: RealRegions | None = None

    def update(self, maps: Tensor) -> None:
        """Replace this process's generated images."""
        self._fake = _checked("fake samples", maps, self.fixed.partition).to(self._own.device)

    def compute(self, comm: Collective) -> RegionMeasures:
        """Return the measures of the images of all processes."""
        with comm.all_ranks_or_none():
            fake = comm.gather_rows(self._fake)
        if self.compared is None:
            with comm.all_ranks_or_none():
                real = comm.gather_rows(_checked("real samples", self._own, self.fixed.partition))
            with comm.all_ranks_or_none(alone=True):
                found = RealRegions(self.fixed, real)
            self.compared = found  # only once every process has it, since the next evaluation gathers on all or on none
        with comm.all_ranks_or_none(alone=True):
            return self.compared.measure(fake, self.testable)


class RealRegions:
    """Real images of all processes, with values that are computed once.

    Args:
        fixed: Values fixed for the run.
        real: Maps of real images [M, C, H, W].
    """

    def __init__(self, fixed: Compared, real: Tensor) -> None:
        self.fixed, self.real = fixed, real
        self.views = views_of_state(fixed.views, real, fixed.partition)
        self._in_blocks: dict[tuple[int, ...], dict[View, PairSums]] = {}
        if fixed.kernel.has_taylor_features and fixed.block_size is None:  # a Gaussian, as the views have
            self.views["structure"] = replace(self.views["structure"], gamma=fixed.kernel.gamma)
        # views are weighted by the inverse standard deviation of their MMD between real images, else as the image
        varies = {view: _or_images(of.deviation, real) for view, of in self.views.items()}
        self._counts = {view: (varies["structure"] / x).nan_to_num(1, 1) for view, x in varies.items()}

    def measure(self, fake: Tensor, testable: bool = True) -> RegionMeasures:
        """Compare generated images [N, C, H, W] with the real ones, in one pass over the distances of each view."""
        with torch.no_grad():
            return self._measured(fake.to(self.real), testable)

    def of_draws(self, pool: Tensor, draws: Tensor) -> Iterator[RegionMeasures]:
        """Compare draws of real images with the real ones, like `measure` without a test, in one pass over all.

        Args:
            pool: Real images [P, C, H, W].
            draws: Indices of some of them [D, n].
        """
        of, every = self.fixed, torch.cat([pool.to(self.real), self.real])
        (count, n), m = draws.shape, len(self.real)
        real = torch.arange(len(pool), len(every))
        fake_block, real_block = of.block_size or n, of.block_size or m
        kernel = GroupKernels.single(of.kernel, every, of.partition, mixture=True)
        squared = torch.zeros(len(kernel.names), count, dtype=torch.float64, device=every.device)
        with torch.no_grad():
            for view, kernels in self.views.items():
                sums = kernels.of_sets(every, [*draws, real])
                within = sums.diagonal(dim1=1, dim2=2)
                apart = within[:, :-1] / n**2 + within[:, -1:] / m**2 - 2 * sums[:, :-1, -1] / (n * m)
                squared += self._counts[view][:, None] * apart.clamp_min(0)
            sums = kernel.of_sets(every, [*draws.reshape(-1, fake_block), *real.view(-1, real_block)])
        within, blocks = sums.diagonal(dim1=1, dim2=2), n // fake_block
        within_real = 1 + within[:, count * blocks :] / real_block**2
        for index, errors in enumerate(squared.sqrt().T.tolist()):
            own = slice(index * blocks, (index + 1) * blocks)
            across = 1 + sums[:, own, count * blocks :] / (fake_block * real_block)
            means = KernelMeans(across, 1 + within[:, own] / fake_block**2, within_real, fake_block, real_block)
            yield RegionMeasures(self._values(means), dict(zip(kernel.names, errors, strict=True)))

    def _measured(self, fake: Tensor, testable: bool) -> RegionMeasures:
        blocks = Blocks.of(fake, self.real, NUM_PERMUTATIONS if testable else 0, self.fixed.seed)
        x, y, size = fake[blocks.fake], self.real[blocks.real], blocks.size
        key = size, *blocks.real.tolist()  # an order that depends on the generated images where real ones repeat
        if key not in self._in_blocks:
            within = {view: kernels.sums(y, sizes=(size, size)) for view, kernels in self.views.items()}
            self._in_blocks = {key: within}
        statistics, influences, means = [], {}, None
        squared = torch.zeros_like(self._counts["structure"])
        for view, kernels in self.views.items():
            of_fake = kernels.sums(x, sizes=(size, size))
            sums = of_fake, kernels.sums(x, y, (size, size)), self._in_blocks[key][view]
            squared += self._counts[view] * _biased(*sums)
            if kernels.gamma is not None:
                means = KernelMeans.of_sums(*sums)
            if testable:
                statistics.append(split_statistics(*sums, blocks))
                influences[view] = influence_of(kernels, *sums)
        if means is None:  # of a kernel that needs distances, or blocks, of its own
            of = self.fixed
            means = kernel_means(fake, self.real, of.kernel, partition=of.partition, block_size=of.block_size)
        values = self._values(means)
        names = group_names(self.fixed.partition)
        error = dict(zip(names, squared.sqrt().tolist(), strict=True))
        if not testable:
            return RegionMeasures(values, error)
        largest = torch.stack(statistics).amax(0)
        of_groups = [*familywise_p_values(largest[:1]).tolist(), *familywise_p_values(largest[1:]).tolist()]
        p = dict(zip(names, of_groups, strict=True))
        of_views = {view: distances(influence) for view, influence in influences.items()}
        together = _on_cpu(both_views(influences, self._counts), blocks)
        return RegionMeasures(values, error, p, of_views, together, fake, self.real)

    def _values(self, means: KernelMeans) -> dict[str, float]:
        """Return CMS, product, shares and the unbiased MMD of the image."""
        values: Any = cms_from_means(means, self.fixed.partition)
        values["dependent_regions"] = values.pop("violations")  # what they mean, beside values of other kinds
        values["mmd"] = mmd_from_means(means.without_diagonal())
        return {name: float(value) for name, value in values.items()}


def _checked(name: str, maps: Tensor, partition: PixelPartition) -> Tensor:
    x = check_samples(name, maps)
    partition.check_images(name, tuple(x.shape))
    return x


def _biased(fake: PairSums, across: PairSums, real: PairSums) -> Tensor:
    """Return biased MMD² of the mixture in each group: float64 [groups], at least 0."""
    n, m = across.rows.shape[1], across.columns.shape[1]
    within = fake.rows.sum(1) / n**2 + real.rows.sum(1) / m**2
    return (within - 2 * across.rows.sum(1) / (n * m)).clamp_min(0)


def _or_images(deviation: Tensor | None, like: Tensor) -> Tensor:
    assert deviation is not None  # of balanced kernels
    return torch.where(deviation > 0, deviation, deviation[:1]).to(like.device)


def _on_cpu(found: MMDInfluence, blocks: Blocks) -> MMDInfluence:
    """Return influences on the CPU, in the order of the samples instead of their blocks."""
    fake, real = (of[:, order.argsort()] for of, order in ((found.fake, blocks.fake), (found.real, blocks.real)))
    found = found._replace(fake=fake, real=real)
    return MMDInfluence(found.regions, *(tensor.cpu() for tensor in found[1:]))


def distances(influence: MMDInfluence) -> dict[str, float]:
    """Return the distance of each region from real images: MMD² in standard deviations of chance, averaged over gammas.

    A region where real images never vary uses the standard deviation of the image.
    """
    chance = torch.where(influence.by_chance > 0, influence.by_chance, influence.by_chance[:1])
    found = torch.where(chance > 0, influence.by_gamma / chance, 0).mean(1)
    return dict(zip(influence.regions, found.tolist(), strict=True))


def both_views(influences: Mapping[View, MMDInfluence], counts: Mapping[View, Tensor]) -> MMDInfluence:
    """Return the discrepancy whose kernel is the sum of the kernels of both views.

    It omits terms of second order common to both views, so standard errors are rather too large than too small.

    Args:
        influences: Influences of each view.
        counts: Weight of each view in each region [R].
    """
    summed = ("mmd", "fake", "real", "second_order", "real_mean")
    total: dict[str, Any] = {name: torch.zeros_like(getattr(influences["structure"], name)) for name in summed}
    for view, influence in influences.items():
        count = counts[view][:, None]
        for name in ("fake", "real"):
            total[name] += count * getattr(influence, name)
        for name in ("mmd", "real_mean"):
            total[name] += counts[view] * getattr(influence, name)
        total["second_order"] += counts[view].square() * influence.second_order
    return influences["structure"]._replace(**total)
