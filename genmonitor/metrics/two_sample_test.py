# SPDX-License-Identifier: Apache-2.0
"""Two-sample test as a stateful metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from genmonitor.functional.discrepancy import MULTIPLIERS, VIEWS, View
from genmonitor.functional.kernel_means import check_estimator
from genmonitor.functional.permutation import NUM_PERMUTATIONS
from genmonitor.functional.two_sample_test import check_test_arguments, two_sample_test
from genmonitor.metrics._real_fake import TwoSidedMetric
from genmonitor.partition import PixelPartition


class TwoSampleTest(TwoSidedMetric):
    """P-values that generated and real samples come from one distribution, for the image and its regions.

    Keeps every sample of both sides. Several processes gather them and split the same pool in the same ways, so the
    p-values are those of a single process.

    Args:
        partition: Regions to test too; None for the whole sample alone, the only choice for features [N, D].
        gammas: Gammas of the kernels, in units of the inverse mean squared distance of a region in the pool of both
            sides.
        views: Views of images, "structure", "texture" or both; features have the structure alone.
        num_permutations: Number of random splits, at least 19.
        seed: Seed of the splits.
        reset_real_features: True if `reset` also forgets the real side.
        kwargs: Keyword arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If an argument is out of its range; by `update` and `compute` as `functional.two_sample_test` does,
            which also documents the values and what the p-values guarantee.

    References:
        Schrab et al., "MMD Aggregated Two-Sample Test", JMLR 2023, arXiv 2110.15073.
        Westfall and Young, "Resampling-Based Multiple Testing", 1993.

    Example:
        >>> import torch
        >>> from genmonitor import PixelPartition, TwoSampleTest
        >>> images = torch.rand(64, 1, 2, 2, generator=torch.Generator().manual_seed(0))
        >>> metric = TwoSampleTest(PixelPartition.grid((2, 2), rows=1, columns=2))
        >>> metric.update(images[:32], real=True)
        >>> metric.update(images[32:] * torch.tensor([1.0, 0.2]), real=False)  # the right half is too dark
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'image': 0.001, 'cluster_1': 1.0, 'cluster_2': 0.001}
    """

    is_differentiable: bool = False
    higher_is_better: bool = True
    plot_lower_bound: float = 0.0
    plot_upper_bound: float = 1.0

    def __init__(
        self,
        partition: PixelPartition | None = None,
        gammas: Sequence[float] = MULTIPLIERS,
        views: Sequence[View] = VIEWS,
        num_permutations: int = NUM_PERMUTATIONS,
        seed: int = 0,
        reset_real_features: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(reset_real_features, **kwargs)
        check_test_arguments(gammas, num_permutations, seed, views)
        check_estimator(None, partition, None)
        self.partition = partition
        self.gammas = tuple(gammas)
        self.views = tuple(views)
        self.num_permutations = num_permutations
        self.seed = seed

    def _compared(self, fake: Tensor, real: Tensor) -> Tensor | dict[str, Tensor]:
        how: Any = {"partition": self.partition, "gammas": self.gammas, "views": self.views}
        return two_sample_test(fake, real, num_permutations=self.num_permutations, seed=self.seed, **how)
