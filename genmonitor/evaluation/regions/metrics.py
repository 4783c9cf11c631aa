# SPDX-License-Identifier: Apache-2.0
"""Measures of the regions in an evaluation: how far each is from real images, and whether by more than chance."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from genmonitor.evaluation.distributed import Collective
from genmonitor.functional.cms import cms_from_means
from genmonitor.functional.discrepancy import View, view_kernels
from genmonitor.functional.kernel_means import KernelMeans
from genmonitor.functional.mmd import mmd_from_means
from genmonitor.functional.mmd_influence import MMDInfluence, RealSide
from genmonitor.kernels import Kernel
from genmonitor.metrics._real_fake import joined
from genmonitor.metrics.cms import CosineMeanSimilarity
from genmonitor.metrics.two_sample_test import TwoSampleTest
from genmonitor.partition import PixelPartition

Influences = Mapping[View, MMDInfluence]
"""Of each view of the images."""


class RegionMetric(CosineMeanSimilarity):
    """CMS of image and regions, and the image's unbiased MMD, from one pass over the distances.

    Args:
        partition: the regions.
        kernel: with its gamma set.
        block_size: as for CMS.
        kwargs: those of CosineMeanSimilarity.
    """

    partition: PixelPartition

    def __init__(
        self,
        partition: PixelPartition,
        kernel: Kernel,
        block_size: int | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(partition, kernel, block_size, reset_real_features=False, **kwargs)

    def _value(self, means: KernelMeans) -> dict[str, Tensor]:
        values: Any = cms_from_means(means, self.partition)
        return values | {"mmd": mmd_from_means(means.without_diagonal())}


class RegionMetrics:
    """CMS, MMD and p-values of generated images against this process's real ones.

    Args:
        cms: CMS and MMD.
        real: maps of real images [m, c, h, w].
        seed: of the permutations.
        testable: whether both sides hold, over all processes, the 8 images that a test needs.
    """

    def __init__(self, cms: RegionMetric, real: Tensor, seed: int, testable: bool) -> None:
        self.cms, self.testable = cms.to(real.device), testable
        self._real_views: RealViews | None = None
        self.test = TwoSampleTest(cms.partition, seed=seed, reset_real_features=False).to(real.device)
        for metric in (self.cms, self.test):
            metric.update(real, real=True)

    def update(self, maps: Tensor) -> None:
        """Take in this process's generated images in place of those before."""
        for metric in (self.cms, self.test):
            metric.reset()
            metric.update(maps, real=False)

    def compute(self, comm: Collective) -> RegionMeasures:
        """Return what the images of all processes give."""
        with comm.all_ranks_or_none():
            computed: Any = self.cms.compute()
        values = {name: float(value) for name, value in computed.items()}
        if not self.testable:
            return RegionMeasures(values)
        with comm.all_ranks_or_none():
            p: Any = self.test.compute()
        fake, influences = self._influences(comm)
        assert self._real_views is not None  # which the influences are of
        return RegionMeasures(
            values, {name: float(value) for name, value in p.items()}, influences, fake, self._real_views.real
        )

    def _influences(self, comm: Collective) -> tuple[Tensor, Influences]:
        """Gather the generated images of all processes and compare them with the real ones, on the CPU from then on."""
        with comm.all_ranks_or_none():
            fake = comm.gather_rows(joined(self.test.fake_samples))
        if self._real_views is None:
            with comm.all_ranks_or_none():
                real = comm.gather_rows(joined(self.test.real_samples))
            with comm.all_ranks_or_none():
                views = RealViews.of(real, self.cms.partition)
            self._real_views = views  # only once every process has it: the next evaluation gathers on all or on none
        with comm.all_ranks_or_none():
            found = self._real_views.influences(fake)
        on_cpu = {view: MMDInfluence(one.regions, *(tensor.cpu() for tensor in one[1:])) for view, one in found.items()}
        return fake, on_cpu


class RegionMeasures(NamedTuple):
    """What an evaluation of the regions measured. Where there are too few images to test, the values alone.

    Attributes:
        values: CMS, shares and MMD.
        p: p-values by region.
        influences: what a later evaluation is compared by.
        fake: generated images of all processes [N, C, H, W].
        real: the real ones that they are compared with.
    """

    values: dict[str, float]
    p: Mapping[str, float] = MappingProxyType({})
    influences: Influences | None = None
    fake: Tensor | None = None
    real: Tensor | None = None


class RealViews(NamedTuple):
    """Real images in both views: what generated ones are compared with."""

    real: Tensor
    sides: Mapping[View, RealSide]

    @classmethod
    def of(cls, real: Tensor, partition: PixelPartition) -> RealViews:
        """Look at real images [M, C, H, W], which also whiten generated ones."""
        kernels = {name: of_view.balanced(real) for name, of_view in view_kernels([real], partition).items()}
        return cls(real, {name: RealSide(real, of, of.sums(real)) for name, of in kernels.items()})

    def influences(self, fake: Tensor) -> Influences:
        """Compare generated images [N, C, H, W] in both views."""
        return {view: side.influence(fake.to(self.real)) for view, side in self.sides.items()}


def distances(influence: MMDInfluence) -> dict[str, float]:
    """Return how far each region is from real images: MMD² in standard deviations of chance, mean over the gammas.

    A region where real images never vary is measured by what chance does to the image.
    """
    chance = torch.where(influence.by_chance > 0, influence.by_chance, influence.by_chance[:1])
    found = torch.where(chance > 0, influence.by_gamma / chance, 0).mean(1)
    return dict(zip(influence.regions, found.tolist(), strict=True))


def both_views(influences: Influences) -> MMDInfluence:
    """Return the discrepancy that sums those of both views: its kernel is the sum of theirs.

    The terms of second order that the views share are left out, which makes its standard errors too large rather than
    too small.
    """
    structure, texture = influences["structure"], influences["texture"]
    added = ("mmd", "fake", "real", "second_order", "real_mean")
    return structure._replace(**{name: getattr(structure, name) + getattr(texture, name) for name in added})
